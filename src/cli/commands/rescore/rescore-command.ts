import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag, storedOptionPrefix } from '../../command-line/flags.ts'
import { evalFlags } from '../eval/eval-command.ts'

export const rescoreFlags = {
  ...flagGroup('What to run', {
    'no-setup': flag.switch('Do not run setup: rewards then see no state.'),
    judge: flag.choice(
      ['recorded', 'live'],
      'Whether a question that was not asked when the run was made is asked now, or fails its reward.',
      { default: 'recorded' },
    ),
  }),
  concurrency: evalFlags.concurrency,
  ...flagGroup('Output', {
    out: flag.text(
      '<file>',
      'Write a JSON line for each rollout, over what the file holds: id, reward before and after, components, metrics.',
    ),
    json: flag.switch('The same lines to stdout, and the summary as the last one.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'rescore',
  description:
    'Runs rewards over the rollouts that a run holds, without any model or tool, and compares the scores with those it had: ' +
    'after a reward was changed, or with those of another environment. Tasks are read again and must be what they were. ' +
    'Verdicts of judges are taken from the recording. The run itself stays as it is.',
  arguments: [
    runArgument,
    {
      name: 'environment',
      required: false,
      help: 'whose rewards to use; those of the run’s own environment if not given',
    },
  ],
  flags: rescoreFlags,
  prefixes: { env: storedOptionPrefix },
  examples: {
    'millrace rescore nightly': 'with the rewards as they are now',
    'millrace rescore nightly ./stricter.ts --out stricter.jsonl': 'with those of another environment',
    'millrace rescore nightly --judge live': 'asking the judge what it was not asked before',
  },
  exitCodes: {
    ok: 'every rollout that had a score, or failed to get one, has one',
    failed:
      'there is no such run, it could not be read or written, or rollouts in it are damaged: the others are there',
    usage: 'the command line or an option is wrong',
    unscored:
      'some rollouts could not be scored, as their task is gone or a reward failed; or the scores may be wrong, as a reward looked at a state that tools or updates change',
  },
  run: async (invocation, io) => (await import('./run-rescore.ts')).runRescore(invocation, io),
})
