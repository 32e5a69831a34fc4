import { join } from 'node:path'
import { expect, test } from 'vitest'
import { exportRows } from '../../src/rows/index.ts'
import { seededRandom } from '../../src/kit/index.ts'
import { RunReader, RunStore } from '../../src/store/index.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { randomSession } from '../support/gateway/random-session.ts'
import { readJsonRows } from '../support/gateway/read-rows.ts'
import { reportsUntilKilled } from '../support/store/reports-until-killed.ts'

const rounds = 8
const seedsPerRound = 100_000

test('kill -9 during sessions loses no reported data', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  const random = seededRandom(4)
  const reported: string[] = []
  for (let round = 0; round < rounds; round += 1) {
    const count = 20 + Math.floor(random() * 1_500)
    reported.push(
      ...(await reportsUntilKilled(
        new URL('../support/store/acking-sessions.ts', import.meta.url),
        [folder, String(round * seedsPerRound)],
        count,
      )),
    )
    using reader = RunReader.open(folder)
    expect(missing(reader, reported)).toEqual([])
  }

  await using store = await RunStore.open({ folder })
  expect(store.reader.integrity()).toEqual([])
  const known = reported.filter((report) => report.startsWith('s ')).map((report) => report.slice(2))
  let open = 0
  for (const { id, end } of store.reader.sessions.each()) {
    // Each holds the beginning of what its agent did, and nothing else.
    const { nodes } = randomSession({ seed: Number(id.split('-')[1]) })
    const recorded = Array.from(store.reader.sessions.nodesOf(id))
    expect(recorded).toEqual(nodes.slice(0, recorded.length))
    if (end) expect(recorded).toHaveLength(nodes.length)
    else open += 1
  }
  expect(Array.from(store.reader.sessions.each({ state: 'open' }))).toHaveLength(open)
  const chunks = await Array.fromAsync(exportRows(store.reader, { rows: 'merged', format: 'jsonl' }))
  const rows = readJsonRows(Buffer.concat(chunks))
  expect(new Set(rows.flatMap((row) => row['session'] ?? []))).toEqual(new Set(sessionIds(store.reader)))
  expect(sessionIds(store.reader)).toEqual(expect.arrayContaining(known))
})

function sessionIds(reader: RunReader): string[] {
  return Array.from(reader.sessions.each(), ({ id }) => id)
}

/** The reports whose thing is not in the run. */
function missing({ sessions }: RunReader, reports: readonly string[]): string[] {
  const seqs = new Map<string, ReadonlySet<number>>()
  return reports.filter((report) => {
    const [kind, id = '', seq] = report.split(' ')
    if (kind === 's') return !sessions.session(id)
    if (kind === 'w') return !sessions.rewardsOf(id).some(({ node }) => node === null)
    if (kind === 'e') return !sessions.session(id)?.end
    let known = seqs.get(id)
    if (!known) seqs.set(id, (known = new Set(Array.from(sessions.bareNodesOf(id), (node) => node.seq))))
    return !known.has(Number(seq))
  })
}
