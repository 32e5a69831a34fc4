import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { runArgument, runsFlag, storedOptionPrefix } from '../command-line/common-flags.ts'
import { evalFlags } from '../eval/eval-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const rescoreFlags = {
  'no-setup': {
    kind: 'switch',
    group: 'What to run',
    help: 'Do not run setup: rewards then see no state.',
  },
  judge: {
    kind: 'choice',
    choices: ['recorded', 'live'],
    group: 'What to run',
    help: 'Whether a question that was not asked when the run was made is asked now, or fails its reward.',
    default: 'recorded',
  },
  concurrency: evalFlags.concurrency,
  out: {
    kind: 'text',
    value: '<file>',
    group: 'Output',
    help: 'Write a JSON line for each rollout, over what the file holds: id, reward before and after, components, metrics.',
  },
  json: { kind: 'switch', group: 'Output', help: 'The same lines to stdout, and the summary as the last one.' },
  runs: runsFlag,
} as const satisfies FlagTable

export const rescoreCommand = defineCommand({
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
  examples: [
    { command: 'millrace rescore nightly', explanation: 'with the rewards as they are now' },
    {
      command: 'millrace rescore nightly ./stricter.ts --out stricter.jsonl',
      explanation: 'with those of another environment',
    },
    { command: 'millrace rescore nightly --judge live', explanation: 'asking the judge what it was not asked before' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'every rollout that had a score, or failed to get one, has one' },
    {
      code: exitCodes.failed,
      meaning:
        'there is no such run, it could not be read or written, or rollouts in it are damaged: the others are there',
    },
    { code: exitCodes.usage, meaning: 'the command line or an option is wrong' },
    {
      code: exitCodes.unscored,
      meaning:
        'some rollouts could not be scored, as their task is gone or a reward failed; or the scores may be wrong, as a reward looked at a state that tools or updates change',
    },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database.
    const { carryOutRescore } = await import('../runs/carry-out-rescore.ts')
    return await carryOutRescore(invocation, io)
  },
})
