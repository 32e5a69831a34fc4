/**
 * Records sessions into the store of a folder, many at once, until it is killed. Reports each thing the moment it is on
 * disk: `s <session>` for a start, `n <session> <seq>` for a message, `w <session>` for the reward of the
 * session, `e <session>` for its end. Node writes to a pipe synchronously, so a report that was made cannot be lost.
 */

import { randomSession, sessionEntries } from '../gateway/random-session.ts'
import { type JournalEntry, RunStore } from '../../../src/store/index.ts'
import { newRun } from './fixtures.ts'

const [folder = '', from = '0'] = process.argv.slice(2)
const atOnce = 32
let next = Number(from)

await using store = await RunStore.open({ folder, create: newRun() })
await Promise.all(
  Array.from({ length: atOnce }, async () => {
    for (;;) await record(next++)
  }),
)

async function record(seed: number): Promise<void> {
  for (const entry of sessionEntries(randomSession({ seed }))) {
    store.journal.append(entry)
    await store.journal.durable()
    const report = reportOf(entry)
    if (report !== undefined) process.stdout.write(`${report}\n`)
  }
}

function reportOf(entry: JournalEntry): string | undefined {
  if (entry.kind === 'session-start') return `s ${entry.session}`
  if (entry.kind === 'node') return `n ${entry.rollout} ${entry.seq}`
  if (entry.kind === 'session-end') return `e ${entry.session}`
  return entry.kind === 'reward' && entry.node === null ? `w ${entry.session}` : undefined
}
