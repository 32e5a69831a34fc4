import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag } from '../../command-line/flags.ts'

/** Flags for a line of JSON per rollout, which is the form of a run of rollouts without `--rows`. */
export const recordFlags = flagGroup('Rollouts as they are recorded', {
  tokens: flag.switch('Add token ids, log-probabilities and weight versions of every turn (see eval --tokens).'),
  'no-task-rows': flag.switch('Leave out the task rows, which otherwise repeat in every rollout.'),
})

export const rowFlags = flagGroup('Rows for training', {
  rows: flag.choice(
    ['interactions', 'merged'],
    'One row per reply, or training rows: one per branch of a conversation, with a mask. [default for a gateway: interactions]',
  ),
  format: flag.choice(['jsonl', 'binary', 'parquet'], 'JSON lines, frames with typed arrays, or a Parquet file.', {
    default: 'jsonl',
  }),
  advantage: flag.choice(
    ['none', 'mean', 'grpo', 'rloo'],
    'How the advantage is computed from the rewards of a group.',
    {
      default: 'none',
    },
  ),
  tenant: flag.text('<name>', 'Only the sessions of this tenant of a gateway. [default: all]'),
  session: flag.text('<id>', 'Only this session or rollout.'),
  group: flag.text('<id>', 'Only the sessions of this group, or the rollouts of the task with this index.'),
  'main-tree': flag.choice(
    ['longest', 'first', 'all'],
    'Which tree of messages gets the reward. Replies outside of it are side calls.',
    { default: 'longest' },
  ),
  trees: flag.choice(['all', 'main'], 'Include the rows of side calls, or only the rows of the main tree.', {
    default: 'all',
  }),
  discount: flag.number('<0 to 1>', 'The discount factor per step.', { default: '1' }),
  'include-discarded': flag.switch('Include lost samples and failed rollouts. They are never trained on.'),
  'skip-without-tokens': flag.switch('Leave replies without tokens out of training rows, instead of refusing them.'),
})

export const exportFlags = {
  ...recordFlags,
  ...rowFlags,
  ...flagGroup('Where to', {
    output: flag.text('<file>', 'Write to a file and replace its content. [default: stdout]', { short: 'o' }),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'export',
  description:
    'Writes what a run recorded, to stdout or to a file: every rollout that has ended, one JSON object a line, or rows for ' +
    'training, of rollouts and of the sessions of a gateway. Works while the run goes on, and never holds more than a few ' +
    'rollouts or one session in memory.',
  arguments: [runArgument],
  flags: exportFlags,
  examples: {
    'millrace export nightly > rollouts.jsonl': 'all rollouts of the run "nightly"',
    'millrace export nightly --tokens -o train.jsonl': 'with tokens, into a file',
    'millrace export nightly | head -1 | jq .messages': 'a look at the first',
    'millrace export nightly --rows merged --advantage grpo --format binary -o train.rows': 'training rows',
    'millrace export gateway --rows merged -o train.jsonl': 'training rows of the sessions of a gateway',
  },
  exitCodes: {
    ok: 'written, also if the reader closed the pipe early',
    failed:
      'the run does not exist, or could not be read or written; or some rollouts or sessions are damaged, or were lost before they were recorded: the others are written',
    usage: 'the command line is wrong, or does not fit the run',
  },
  run: async (invocation, io) => (await import('./run-export.ts')).runExport(invocation, io),
})
