import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { emptyUsage, type Outcome } from '../../../src/schema/index.ts'
import type { JournalEntry, NewRun, RolloutEnd } from '../../../src/store/index.ts'

/** A folder that is gone at the end of the scope. */
export function temporaryFolder(): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(tmpdir(), 'millrace-store-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

/** Which files at or below this path the process has open. */
export function openFiles(path: string): string[] {
  return readdirSync('/proc/self/fd').flatMap((descriptor) => {
    const target = linkTarget(`/proc/self/fd/${descriptor}`)
    return target?.startsWith(path) ? [target] : []
  })
}

/** Undefined if it is gone, as the descriptor that the list itself was read with. */
function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path)
  } catch {
    return undefined
  }
}

export function newRun(parts: Partial<NewRun> = {}): NewRun {
  return { name: 'test', configDigest: 'digest', config: { model: 'sim' }, provenance: {}, ...parts }
}

/** What every record has, empty. */
export const recordParts = {
  task: {},
  rewards: {},
  metrics: {},
  usage: emptyUsage(),
  judgeUsage: emptyUsage(),
  timing: {},
}

export interface RolloutShape {
  readonly attempt?: number
  readonly outcome?: Outcome
  readonly messages?: readonly string[]
  readonly record?: Record<string, unknown>
}

/** Everything the journal gets for one rollout of `messages.length` messages, ended and accepted. */
export function rolloutEntries(task: number, shape: RolloutShape = {}): JournalEntry[] {
  const { attempt = 1, outcome = 'completed' } = shape
  const rollout = `${task}-0`
  const texts = shape.messages ?? [`question ${task}`, `antwört ${task} 🙂`]
  const messages = texts.map((content, index) => JSON.stringify({ role: index % 2 ? 'assistant' : 'user', content }))
  const reward = outcome === 'completed' ? 1 : null
  const record = JSON.stringify({ id: rollout, sample: 0, attempt, outcome, reward, ...recordParts, ...shape.record })
  const leaf = messages.length - 1
  const end: RolloutEnd = {
    kind: 'rollout-end',
    rollout,
    attempt,
    task,
    sample: 0,
    at: 1_700_000_000_003,
    outcome,
    reward,
    record,
    leaf,
    messages,
  }
  return [
    { kind: 'task', index: task, id: `task-${task}`, digest: `d${task}` },
    { kind: 'attempt-start', rollout, attempt, parent: null, task, sample: 0, at: 1_700_000_000_001 },
    ...messages.map((message, seq) => nodeEntry({ rollout, attempt, seq, message })),
    { kind: 'attempt-end', rollout, attempt, at: 1_700_000_000_002, outcome, isHeld: true, record, leaf },
    end,
  ]
}

export function nodeEntry(node: {
  rollout: string
  attempt?: number
  seq: number
  message?: string
  meta?: string
}): JournalEntry {
  const { rollout, attempt = 1, seq, message = `{"role":"user","content":"${node.seq}"}` } = node
  return {
    kind: 'node',
    rollout,
    attempt,
    seq,
    parent: seq === 0 ? null : seq - 1,
    hash: `h${seq}`,
    message,
    sampled: seq % 2 === 1,
    at: 1_700_000_000_001,
    meta: node.meta ?? null,
  }
}
