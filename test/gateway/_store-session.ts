import { AttemptRecorder, type Journal, type JournalEntry } from '../../src/store/index.ts'
import type { RandomSession } from './_random-session.ts'

/** Everything the journal gets for a session, in order. */
export function sessionEntries({ session, nodes, rewards }: RandomSession): JournalEntry[] {
  const { id, group, tenant, keyDigest, startedAt, data, end } = session
  const entries: JournalEntry[] = [
    { kind: 'session-start', session: id, group, tenant, keyDigest, at: startedAt, data: JSON.stringify(data) },
  ]
  const recorder = new AttemptRecorder(journalInto(entries), id, 0)
  for (const node of nodes) recorder.node(node, JSON.stringify(node.message))
  for (const { node, value, at } of rewards) entries.push({ kind: 'reward', session: id, node, value, at })
  if (end) entries.push({ kind: 'session-end', session: id, ...end })
  return entries
}

/** A journal that keeps what it is given. */
export function journalInto(entries: JournalEntry[]): Journal {
  return {
    append: (entry) => void entries.push(entry),
    appendAll: (more) => void entries.push(...more),
    pressure: 0,
    durable: () => undefined,
    synced: () => undefined,
    syncedSoon: () => undefined,
    written: () => undefined,
  }
}
