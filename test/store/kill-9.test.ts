import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { seededRandom } from '../../src/kit/index.ts'
import { exportRollouts, runFiles, RunReader, RunStore } from '../../src/store/index.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { reportsUntilKilled } from '../support/store/reports-until-killed.ts'

const rounds = 12

test('kill -9 during writes loses no reported data, twelve times in a row', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  const random = seededRandom(9)
  const reported: string[] = []
  for (let round = 0; round < rounds; round += 1) {
    const count = 20 + Math.floor(random() * 1_500)
    reported.push(
      ...(await reportsUntilKilled(
        new URL('../support/store/acking-writer.ts', import.meta.url),
        [folder, String(round * 100_000), '100000'],
        count,
      )),
    )

    using reader = RunReader.open(folder)
    expect(missing(reader, reported)).toEqual([])
  }

  await using store = await RunStore.open({ folder })
  expect(missing(store.reader, reported)).toEqual([])
  expect(store.reader.integrity()).toEqual([])
  const exported = await Array.fromAsync(exportRollouts(store.reader, { format: 'jsonl' }))
  expect(exported.join('') === readFileSync(join(folder, runFiles.lines), 'utf8')).toBe(true)
  expect(exported).toHaveLength(store.reader.counts().ended)
  expect(store.run.launches).toHaveLength(rounds + 1)
})

/** The reports whose thing is not in the run. */
function missing(reader: RunReader, reports: readonly string[]): string[] {
  const seqs = new Map<string, ReadonlySet<number>>()
  return reports.filter((report) => {
    const [kind, rollout = '', seq] = report.split(' ')
    if (kind === 'r') return !reader.hasEnded(rollout)
    let known = seqs.get(rollout)
    if (!known) seqs.set(rollout, (known = new Set(reader.nodes(rollout, 1).map((node) => node.seq))))
    return !known.has(Number(seq))
  })
}
