/**
 * Runs rollouts into the store of a folder, many at once, until it is killed or has done as many as asked. Reports each
 * thing the moment it is on disk: `n <rollout> <seq>` for a message, `r <rollout>` for a result. Node writes to a pipe
 * synchronously, so a report that was made cannot be lost with the process.
 */

import { RunStore } from '../../../src/store/index.ts'
import { newRun, rolloutEntries } from './fixtures.ts'

const [folder = '', from = '0', count = '0'] = process.argv.slice(2)
const first = Number(from)
const end = first + Number(count)
const atOnce = 48
let next = first

await using store = await RunStore.open({ folder, create: newRun() })
await Promise.all(
  Array.from({ length: atOnce }, async () => {
    while (next < end) await rollout(next++)
  }),
)
await store.finish('complete', { end: 'complete' })

async function rollout(task: number): Promise<void> {
  // Every fiftieth is too long for its row.
  const middle = 'x'.repeat(task % 50 === 0 ? 80_000 : 300)
  for (const entry of rolloutEntries(task, { messages: ['question', middle, `end of ${task}`] })) {
    store.journal.append(entry)
    if (entry.kind !== 'node' && entry.kind !== 'rollout-end') continue
    await store.journal.durable()
    process.stdout.write(entry.kind === 'node' ? `n ${entry.rollout} ${entry.seq}\n` : `r ${entry.rollout}\n`)
  }
}
