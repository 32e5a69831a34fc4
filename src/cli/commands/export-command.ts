import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { runArgument, runsFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const rolloutFlags = {
  tokens: {
    kind: 'switch',
    group: 'Rollouts',
    help: 'Add token ids, log-probabilities and weight versions of every turn, for training (see eval --tokens).',
  },
  'no-task-rows': {
    kind: 'switch',
    group: 'Rollouts',
    help: 'Leave out the rows of tasks, which each rollout of a task has again.',
  },
} as const satisfies FlagTable

export const sessionFlags = {
  rows: {
    kind: 'choice',
    choices: ['interactions', 'merged'],
    group: 'Sessions of a gateway',
    help: 'One row per reply, or training rows: one per branch, with a mask.',
    default: 'interactions',
  },
  format: {
    kind: 'choice',
    choices: ['jsonl', 'binary'],
    group: 'Sessions of a gateway',
    help: 'JSON lines, or frames with typed arrays.',
    default: 'jsonl',
  },
  tenant: {
    kind: 'text',
    value: '<name>',
    group: 'Sessions of a gateway',
    help: 'Only the sessions of this tenant. [default: all]',
  },
  session: { kind: 'text', value: '<id>', group: 'Sessions of a gateway', help: 'Only this session.' },
  group: { kind: 'text', value: '<id>', group: 'Sessions of a gateway', help: 'Only the sessions of this group.' },
  'main-tree': {
    kind: 'choice',
    choices: ['longest', 'first', 'all'],
    group: 'Sessions of a gateway',
    help: "Which tree of messages gets a session's reward. Replies outside of it are side calls.",
    default: 'longest',
  },
  trees: {
    kind: 'choice',
    choices: ['all', 'main'],
    group: 'Sessions of a gateway',
    help: 'Also the rows of side calls, or only those of the main tree.',
    default: 'all',
  },
  discount: {
    kind: 'number',
    value: '<0 to 1>',
    group: 'Sessions of a gateway',
    help: 'What a step later is worth now.',
    default: '1',
  },
  'include-discarded': {
    kind: 'switch',
    group: 'Sessions of a gateway',
    help: 'Also what was sampled and lost. It is never trained on.',
  },
  'skip-without-tokens': {
    kind: 'switch',
    group: 'Sessions of a gateway',
    help: 'Leave replies without tokens out of training rows, instead of refusing them.',
  },
} as const satisfies FlagTable

export const exportFlags = {
  ...rolloutFlags,
  ...sessionFlags,
  output: {
    kind: 'text',
    short: 'o',
    value: '<file>',
    group: 'Where to',
    help: 'Write to a file, over what it holds. [default: stdout]',
  },
  runs: runsFlag,
} as const satisfies FlagTable

export const exportCommand = defineCommand({
  name: 'export',
  description:
    'Writes what a run recorded, to stdout or to a file: every rollout that has ended, one JSON object a line, or the ' +
    'sessions of a gateway as rows for training. Works while the run goes on, and never holds more than a few rollouts or ' +
    'one session in memory.',
  arguments: [runArgument],
  flags: exportFlags,
  examples: [
    { command: 'millrace export nightly > rollouts.jsonl', explanation: 'all rollouts of the run "nightly"' },
    { command: 'millrace export nightly --tokens -o train.jsonl', explanation: 'with tokens, into a file' },
    { command: 'millrace export nightly | head -1 | jq .messages', explanation: 'a look at the first' },
    {
      command: 'millrace export gateway --rows merged --format binary -o train.rows',
      explanation: 'training rows of all sessions',
    },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'written, also when the reader has had enough' },
    {
      code: exitCodes.failed,
      meaning:
        'there is no such run, it could not be read or written, or rollouts or sessions in it are damaged, or lost before they were in its record: the others are there',
    },
    { code: exitCodes.usage, meaning: 'the command line is wrong, or does not fit the run' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database.
    const { carryOutExport } = await import('../runs/carry-out-export.ts')
    return await carryOutExport(invocation, io)
  },
})
