import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { runArgument, runsFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const doctorFlags = {
  json: { kind: 'switch', group: 'What to show', help: 'As one JSON object.' },
  runs: runsFlag,
} as const satisfies FlagTable

export const doctorCommand = defineCommand({
  name: 'doctor',
  description:
    'Shows what this machine offers and what will limit a run on it. Given a run, shows what held that one up: functions ' +
    'of the environment that blocked a loop, limits that moved, and failures that the policy did not cause.',
  arguments: [{ ...runArgument, required: false }],
  flags: doctorFlags,
  examples: [
    { command: 'millrace doctor', explanation: 'processors, memory, open files, disk and timers' },
    { command: 'millrace doctor nightly', explanation: 'what held up the run "nightly"' },
    { command: `millrace doctor nightly --json | jq '.blocked[].blockedBy'`, explanation: 'the functions to look at' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'shown, also where something will limit' },
    { code: exitCodes.failed, meaning: 'there is no such run, or it cannot be read' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database.
    const { carryOutDoctor } = await import('../doctor/carry-out-doctor.ts')
    return await carryOutDoctor(invocation, io)
  },
})
