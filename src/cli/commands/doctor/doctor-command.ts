import { defineCommand, runArgument } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag } from '../../command-line/flags.ts'

export const doctorFlags = {
  ...flagGroup('What to show', {
    json: flag.switch('As one JSON object.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'doctor',
  description:
    'Shows the resources of this machine and the limits of a run on it. Given a run, shows what slowed it down: functions ' +
    'of the environment that blocked a loop, limits that moved, and failures that the policy did not cause.',
  arguments: [{ ...runArgument, required: false }],
  flags: doctorFlags,
  examples: {
    'millrace doctor': 'processors, memory, open files, disk and timers',
    'millrace doctor nightly': 'what slowed down the run "nightly"',
    [`millrace doctor nightly --json | jq '.blocked[].blockedBy'`]: 'the functions to look at',
  },
  exitCodes: {
    ok: 'shown, with or without warnings',
    failed: 'there is no such run, or it cannot be read',
    usage: 'the command line is wrong',
  },
  run: async (invocation, io) => (await import('./run-doctor.ts')).runDoctor(invocation, io),
})
