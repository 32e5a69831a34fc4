import { contextEvent, recalledChildEvent } from '../../rollout/index.ts'
import type { Json } from '../../schema/index.ts'
import type { Journal, JournalEntry, NodeEntry } from '../../store/index.ts'

export interface ReplayedSession {
  readonly nodes: NodeEntry[]
  readonly contexts: Json[]
  /** The session's children that did not run again, by what their ids add to the rollout's. */
  readonly recalled: string[]
  record?: string
}

/** Keeps the entries of a replayed rollout until the next one begins. Nothing goes to disk. */
export class ReplayJournal implements Journal {
  readonly pressure = 0
  #sessions = new Map<string, ReplayedSession>()

  take(): ReadonlyMap<string, ReplayedSession> {
    const sessions = this.#sessions
    this.#sessions = new Map()
    return sessions
  }

  append(entry: JournalEntry): void {
    if (entry.kind === 'attempt-start') this.#session(entry.rollout)
    else if (entry.kind === 'node') this.#session(entry.rollout).nodes.push(entry)
    else if (entry.kind === 'attempt-end') this.#session(entry.rollout).record = entry.record
    else if (entry.kind === 'event' && entry.rollout !== null) this.#event(entry.rollout, entry.name, entry.data)
  }

  appendAll(entries: readonly JournalEntry[]): void {
    for (const entry of entries) this.append(entry)
  }

  durable(): undefined {
    return undefined
  }

  durableSoon(): undefined {
    return undefined
  }

  #event(session: string, name: string, data: string): void {
    if (name === contextEvent) this.#session(session).contexts.push(JSON.parse(data) as Json)
    if (name === recalledChildEvent) this.#session(session).recalled.push((JSON.parse(data) as { child: string }).child)
  }

  #session(id: string): ReplayedSession {
    const known = this.#sessions.get(id)
    if (known) return known
    const session: ReplayedSession = { nodes: [], contexts: [], recalled: [] }
    this.#sessions.set(id, session)
    return session
  }
}
