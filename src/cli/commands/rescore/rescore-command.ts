import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag, storedOptionPrefix } from '../../command-line/flags.ts'
import { evalFlags } from '../eval/eval-command.ts'

export const rescoreFlags = {
  ...flagGroup('What to run', {
    'no-setup': flag.switch('Do not run setup: rewards then see no state.'),
    judge: flag.choice(
      ['recorded', 'live'],
      'For a judge call that is not in the recording: fail its reward (recorded), or call the judge now (live).',
      { default: 'recorded' },
    ),
  }),
  concurrency: evalFlags.concurrency,
  ...flagGroup('Output', {
    out: flag.text(
      '<file>',
      'Write a JSON line for each rollout and replace the content of the file: id, reward before and after, components, metrics.',
    ),
    json: flag.switch('The same lines to stdout, and the summary as the last one.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'rescore',
  description:
    'Runs rewards over the rollouts of a run, without any model or tool, and compares the new scores with the old ones: ' +
    'after a reward was changed, or with the rewards of another environment. Tasks are read again and must be unchanged. ' +
    'Verdicts of judges are taken from the recording. The run itself is not changed.',
  arguments: [
    runArgument,
    {
      name: 'environment',
      required: false,
      help: 'the environment whose rewards to use; the run’s own environment if not given',
    },
  ],
  flags: rescoreFlags,
  prefixes: { env: storedOptionPrefix },
  examples: {
    'millrace rescore nightly': 'with the rewards as they are now',
    'millrace rescore nightly ./stricter.ts --out stricter.jsonl': 'with the rewards of another environment',
    'millrace rescore nightly --judge live': 'with judge calls that are not in the recording',
  },
  exitCodes: {
    ok: 'every rollout that had a score, or whose reward had failed, has a score',
    failed:
      'the run does not exist, or could not be read or written; or some rollouts are damaged: the others are written',
    usage: 'the command line or an option is wrong',
    unscored:
      'some rollouts could not be scored, as their task is gone or a reward failed; or the scores may be wrong, as a reward looked at a state that tools or updates change',
  },
  run: async (invocation, io) => (await import('./run-rescore.ts')).runRescore(invocation, io),
})
