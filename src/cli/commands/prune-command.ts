import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const pruneFlags = {
  'older-than': {
    kind: 'duration',
    value: '<duration>',
    group: 'What may go',
    help: 'Runs last used longer ago than this: 12h, 30d. [default: 30d, unless --keep is given]',
  },
  keep: { kind: 'integer', value: '<count>', group: 'What may go', help: 'All but the newest so many.' },
  unfinished: { kind: 'switch', group: 'What may go', help: 'Also runs that could be continued.' },
  yes: { kind: 'switch', group: 'What to do', help: 'Delete them.' },
  json: { kind: 'switch', group: 'What to do', help: 'A JSON line for each run, and whether it was removed.' },
  runs: runsFlag,
} as const satisfies FlagTable

export const pruneCommand = defineCommand({
  name: 'prune',
  description:
    'Deletes old runs, or one by its name. Without --yes it only lists what would go. A run that somebody is working on never goes, and one ' +
    'that could be continued only with --unfinished.',
  arguments: [{ name: 'run', required: false, help: 'one run of the runs folder, however new: its name, or its path' }],
  flags: pruneFlags,
  examples: [
    { command: 'millrace prune', explanation: 'what is older than 30 days' },
    { command: 'millrace prune --older-than 7d --yes', explanation: 'delete what is older than a week' },
    { command: 'millrace prune nightly --yes', explanation: 'delete the run "nightly"' },
    { command: 'millrace prune --keep 10 --unfinished --yes', explanation: 'delete all but the ten newest' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'listed or deleted, also where there was nothing to' },
    {
      code: exitCodes.failed,
      meaning: 'something could not be deleted, or the run that was named is in use or not there',
    },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database.
    const { carryOutPrune } = await import('../runs/carry-out-prune.ts')
    return await carryOutPrune(invocation, io)
  },
})
