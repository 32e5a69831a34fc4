import { defineCommand, type FlagTable } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'

export const listFlags = {
  limit: { kind: 'integer', value: '<count>', min: 1, group: 'What to show', help: 'Runs to list.', default: '20' },
  json: { kind: 'switch', group: 'What to show', help: 'One JSON object a line.' },
  runs: runsFlag,
} as const satisfies FlagTable

export const listCommand = defineCommand({
  name: 'list',
  description:
    'Lists the runs in the runs folder, newest first: what they ran, how far they got, how they scored, and in which ' +
    'settings the listed runs of one environment differ.',
  arguments: [],
  flags: listFlags,
  examples: [
    { command: 'millrace list', explanation: 'the newest runs' },
    { command: 'millrace list --runs /data/runs --limit 100', explanation: 'more of them, from elsewhere' },
    { command: `millrace list --json | jq -r 'select(.state == "unfinished").run'`, explanation: 'those to continue' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'listed, also where there are none' },
    { code: exitCodes.failed, meaning: 'the folder cannot be read' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run(invocation, io) {
    // Loaded only now: the help of this command must not load a database.
    const { carryOutList } = await import('../runs/carry-out-list.ts')
    return await carryOutList(invocation, io)
  },
})
