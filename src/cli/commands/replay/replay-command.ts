import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag, storedOptionPrefix } from '../../command-line/flags.ts'

export const replayFlags = {
  ...flagGroup('What to replay', {
    all: flag.switch('Every rollout of the run that has ended.'),
    environment: flag.text('<module>', 'The environment, if it has moved since the run was made.'),
  }),
  ...flagGroup('Output', {
    limit: flag.integer('<count>', 'With --all: how many different rollouts are shown.', { min: 1, default: '5' }),
    json: flag.switch('One JSON object a line for each rollout; with --all a summary last.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'replay',
  description:
    'Runs a stored rollout again against its own recording and compares the two, message for message: the agent, updates, ' +
    'children and rewards run, and every answer from outside comes from the recording. No model, judge or tool ' +
    'server is called; of the environment’s own tools, only tools that rebuild its state run (resume: rerun). A call that ' +
    'is not in the recording is reported as a difference and not made.',
  arguments: [
    runArgument,
    {
      name: 'rollout',
      required: false,
      help: 'the rollout, such as 12-0 (task 12, first attempt), or a task with only one rollout',
    },
  ],
  flags: replayFlags,
  prefixes: { env: { ...storedOptionPrefix, group: 'What to replay' } },
  examples: {
    'millrace replay nightly 12-0': 'whether the rollout repeats exactly, and if not, the first difference',
    'millrace replay nightly --all': 'the same for the whole run, after a change to the environment',
    'millrace replay nightly --all --json | jq \'select(.verdict == "different") | .rollout\'': 'which ones differ',
  },
  exitCodes: {
    ok: 'every replayed rollout is identical',
    failed: 'something differs or is damaged, or there is no such run or rollout, or it cannot be replayed',
    usage: 'the command line is wrong',
  },
  run: async (invocation, io) => (await import('./run-replay.ts')).runReplay(invocation, io),
})
