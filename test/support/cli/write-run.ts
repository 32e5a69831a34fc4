import { join } from 'node:path'
import { emptyUsage, type Message, type RolloutRecord } from '../../../src/schema/index.ts'
import type { JournalEntry, NewRun } from '../../../src/store/index.ts'
import { writeStoredRun } from '../store/write-stored-run.ts'
import { sampleRecord } from './fake-evaluation.ts'

export interface WrittenRollout {
  readonly record: Partial<RolloutRecord>
  /** The rollout that asked for this one, if it is a child. */
  readonly parent?: string
  readonly messages?: readonly { readonly message: Message; readonly meta?: object }[]
  /** The row of its task, if the run keeps it. */
  readonly taskRow?: unknown
  /** What the judge said. */
  readonly verdicts?: readonly string[]
}

/** Writes a real run to `<root>/<name>`, and leaves it in the given state. */
export function writeRun(options: {
  readonly root: string
  readonly name: string
  readonly rollouts: readonly WrittenRollout[]
  readonly attempts?: number
  /** Whether the run is a server's. */
  readonly isServed?: boolean
  /** `none`: no end is recorded, as after a crash. */
  readonly end?: 'complete' | 'drained' | 'max_cost' | 'none'
  readonly provenance?: NewRun['provenance']
  /** Settings beside the usual ones. */
  readonly config?: NewRun['config']
}): void {
  const { root, name, attempts = 1, isServed, end = 'complete', provenance = {} } = options
  const config = {
    environment: { name: 'arithmetic', specifier: null, options: {} },
    model: 'sim',
    attempts,
    passThreshold: 1,
    ...(isServed && { isServed }),
    ...options.config,
  }
  writeStoredRun(
    join(root, name),
    { name, configDigest: 'digest', config, provenance },
    options.rollouts.flatMap(entriesOf),
    { state: end === 'complete' ? 'complete' : 'unfinished', ...(end !== 'none' && { end }) },
  )
}

function entriesOf({ record: parts, parent, messages: given, taskRow, verdicts = [] }: WrittenRollout): JournalEntry[] {
  const messages = given ?? [{ message: { role: 'user', content: 'What is 2+2?' } }]
  const { messages: _, ...record } = sampleRecord(parts)
  const { id: rollout, attempt, outcome, reward, sample } = record
  const task = record.task.index
  const at = Date.now()
  const leaf = messages.length - 1
  const text = JSON.stringify(record)
  const entries: JournalEntry[] = [
    { kind: 'task', index: task, id: record.task.id, digest: `d${task}`, row: JSON.stringify(taskRow) },
    { kind: 'attempt-start', rollout, attempt, parent: parent ?? null, task, sample, at },
  ]
  for (const [seq, { message, meta }] of messages.entries()) {
    entries.push({
      kind: 'node',
      rollout,
      attempt,
      seq,
      parent: seq === 0 ? null : seq - 1,
      hash: `h${seq}`,
      message: JSON.stringify(message),
      sampled: message.role === 'assistant',
      at,
      meta: meta ? JSON.stringify(meta) : null,
    })
  }
  for (const content of verdicts) {
    const reply = { role: 'assistant', content }
    const data = JSON.stringify({ request: 'q', model: 'the-judge', reply, usage: emptyUsage(), cost: 0 })
    entries.push({ kind: 'event', rollout, attempt, name: 'judge-call', at, data })
  }
  entries.push({ kind: 'attempt-end', rollout, attempt, at, outcome, isHeld: true, record: text, leaf })
  // A child's result is only for its parent to use: no result is recorded for it.
  if (parent !== undefined) return entries
  const result = { rollout, attempt, task, sample, at, outcome, reward, record: text, leaf }
  entries.push({ kind: 'rollout-end', ...result, messages: messages.map(({ message }) => JSON.stringify(message)) })
  return entries
}
