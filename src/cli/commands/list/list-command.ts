import { defineCommand } from '../../command-line/command.ts'
import { flag, flagGroup, type FlagTable, runsFlag } from '../../command-line/flags.ts'

export const listFlags = {
  ...flagGroup('What to show', {
    limit: flag.integer('<count>', 'Runs to list.', { min: 1, default: '20' }),
    json: flag.switch('One JSON object a line.'),
  }),
  runs: runsFlag,
} as const satisfies FlagTable

export const command = defineCommand({
  name: 'list',
  description:
    'Lists the runs in the runs folder, newest first: what they ran, how far they got, how they scored, and in which ' +
    'settings the listed runs of one environment differ.',
  arguments: [],
  flags: listFlags,
  examples: {
    'millrace list': 'the newest runs',
    'millrace list --runs /data/runs --limit 100': 'more runs, from another folder',
    [`millrace list --json | jq -r 'select(.state == "unfinished").run'`]: 'the runs that can be continued',
  },
  exitCodes: {
    ok: 'listed, also if there are no runs',
    failed: 'the folder cannot be read',
    usage: 'the command line is wrong',
  },
  run: async (invocation, io) => (await import('./run-list.ts')).runList(invocation, io),
})
