import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag } from '../../command-line/flags.ts'

export const pruneFlags = {
  ...flagGroup('What to delete', {
    'older-than': flag.duration(
      'Runs last used longer ago than this: 12h, 30d. [default: 30d, unless --keep is given]',
    ),
    keep: flag.integer('<count>', 'All runs but this many of the newest.'),
    unfinished: flag.switch('Also runs that could be continued.'),
  }),
  ...flagGroup('What to do', {
    yes: flag.switch('Delete the listed runs.'),
    json: flag.switch('A JSON line for each run, and whether it was removed.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'prune',
  description:
    'Deletes old runs, or one run by its name. Without --yes it only lists them. A run in use is never deleted, and a run ' +
    'that could be continued only with --unfinished.',
  arguments: [{ name: 'run', required: false, help: 'one run of the runs folder, however new: its name, or its path' }],
  flags: pruneFlags,
  examples: {
    'millrace prune': 'the runs older than 30 days',
    'millrace prune --older-than 7d --yes': 'delete the runs older than a week',
    'millrace prune nightly --yes': 'delete the run "nightly"',
    'millrace prune --keep 10 --unfinished --yes': 'delete all but the ten newest',
  },
  exitCodes: {
    ok: 'listed or deleted, also if there was nothing to delete',
    failed: 'a run could not be deleted, or the named run is in use or does not exist',
    usage: 'the command line is wrong',
  },
  run: async (invocation, io) => (await import('./run-prune.ts')).runPrune(invocation, io),
})
