import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { pooledRun } from '../support/workers/pooled-run.ts'

test.each(['thread', 'process'] as const)('workers share the limit of concurrent commands, each a %s', async (kind) => {
  await using runs = await temporaryRuns()
  process.env['COMMAND_PLACES'] = runs.root
  const records = await pooledRun({ root: runs.root, kind, count: 12, environment: 'workers/commands' })
  expect(records.map(({ reward }) => reward)).toEqual(Array.from(records, () => 1))
})
