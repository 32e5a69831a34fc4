import { outcomeNames } from '../../schema/index.ts'
import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { runArgument, runsFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const showFlags = {
  outcome: {
    kind: 'choice',
    value: '<outcome>',
    choices: [...outcomeNames, 'any'],
    group: 'What to show',
    help: `List the rollouts that ended so: ${outcomeNames.join(', ')}, or any.`,
  },
  reward: {
    kind: 'text',
    value: '<range>',
    group: 'What to show',
    help: 'List the rollouts with such a reward: 1, 0..0.5, 0.5.., ..0.5, "<1", or none for those without one.',
  },
  turns: {
    kind: 'text',
    value: '<range>',
    group: 'What to show',
    help: 'List the rollouts with so many turns: 3, 10.., ..2.',
  },
  sort: {
    kind: 'choice',
    value: '<what>',
    choices: ['reward', 'outcome', 'turns'],
    group: 'What to show',
    help: 'List the rollouts by reward, outcome or turns, the least first. [default: as they ended]',
  },
  reverse: { kind: 'switch', group: 'What to show', help: 'With --sort: the most first.' },
  limit: {
    kind: 'integer',
    value: '<count>',
    min: 1,
    group: 'What to show',
    help: 'Rollouts or sessions to list.',
    default: '20',
  },
  json: {
    kind: 'switch',
    group: 'What to show',
    help: 'As JSON: the summary, the listed rollouts, or the rollout or session.',
  },
  runs: runsFlag,
} as const satisfies FlagTable

export const showCommand = defineCommand({
  name: 'show',
  description:
    'Shows a run: its results so far, a list of its rollouts, filtered and sorted, or the transcript of a single rollout with ' +
    'every message, tool call, reward and attempt. Of a gateway: its newest sessions, or what was said in one. Works while ' +
    'the run goes on.',
  arguments: [
    runArgument,
    {
      name: 'rollout',
      required: false,
      help: 'a rollout to read, such as 12-0 (task 12, first attempt), a task that has one alone, or a session of a gateway',
    },
  ],
  flags: showFlags,
  examples: [
    { command: 'millrace show nightly', explanation: 'the results of the run "nightly"' },
    { command: 'millrace show nightly 12-0', explanation: 'what was said in the first attempt at task 12' },
    { command: 'millrace show nightly --outcome model_error', explanation: 'the rollouts that the backend failed' },
    {
      command: 'millrace show latest --reward "<1" --sort turns --reverse',
      explanation: 'the rollouts of the newest run that did not pass, the longest first',
    },
    { command: 'millrace show gateway --limit 100', explanation: 'the newest sessions of the gateway' },
    { command: 'millrace show nightly --json | jq .score', explanation: 'the score, for a script' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'shown' },
    { code: exitCodes.failed, meaning: 'there is no such run, rollout or session, or it cannot be read' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database.
    const { carryOutShow } = await import('../runs/carry-out-show.ts')
    return await carryOutShow(invocation, io)
  },
})
