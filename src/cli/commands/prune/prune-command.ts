import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag } from '../../command-line/flags.ts'

export const pruneFlags = {
  ...flagGroup('What may go', {
    'older-than': flag.duration(
      'Runs last used longer ago than this: 12h, 30d. [default: 30d, unless --keep is given]',
    ),
    keep: flag.integer('<count>', 'All but the newest so many.'),
    unfinished: flag.switch('Also runs that could be continued.'),
  }),
  ...flagGroup('What to do', {
    yes: flag.switch('Delete them.'),
    json: flag.switch('A JSON line for each run, and whether it was removed.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'prune',
  description:
    'Deletes old runs, or one by its name. Without --yes it only lists what would go. A run that somebody is working on never goes, and one ' +
    'that could be continued only with --unfinished.',
  arguments: [{ name: 'run', required: false, help: 'one run of the runs folder, however new: its name, or its path' }],
  flags: pruneFlags,
  examples: {
    'millrace prune': 'what is older than 30 days',
    'millrace prune --older-than 7d --yes': 'delete what is older than a week',
    'millrace prune nightly --yes': 'delete the run "nightly"',
    'millrace prune --keep 10 --unfinished --yes': 'delete all but the ten newest',
  },
  exitCodes: {
    ok: 'listed or deleted, also where there was nothing to',
    failed: 'something could not be deleted, or the run that was named is in use or not there',
    usage: 'the command line is wrong',
  },
  run: async (invocation, io) => (await import('./run-prune.ts')).runPrune(invocation, io),
})
