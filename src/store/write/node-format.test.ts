import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import type { MessageNode, TokenRecord } from '../../schema/index.ts'
import { AttemptRecorder } from './journal-client.ts'
import type { JournalEntry } from './journal.ts'
import { runFiles } from '../run/run-folder.ts'
import { RunReader } from '../read/run-reader.ts'
import { journalInto, randomSession } from '../../../test/support/gateway/random-session.ts'
import { applyAll } from '../../../test/support/store/apply-entries.ts'
import { temporaryFolder } from '../../../test/support/store/fixtures.ts'

const message = { role: 'assistant', content: 'x' } as const
const usage = { calls: 1, input: 1, cachedInput: 0, output: 1, reasoning: 0 }
const call = { model: 'm', backend: 'b', usage, cost: null, tries: 1, ms: 1, waitMs: 0 } as const

function sampled(seq: number, tokens: TokenRecord, isLost = false): MessageNode {
  const origin = isLost ? { discarded: { ...call, why: 'failed' } } : { call: { ...call, finishReason: 'stop' } }
  return {
    seq,
    parent: seq === 0 ? null : seq - 1,
    hash: 'h',
    message,
    sampled: true,
    at: 1,
    tokens,
    ...origin,
  } as MessageNode
}

const tokensOf = (prompt: readonly number[], ids: readonly number[]): TokenRecord => ({
  promptIds: Int32Array.from(prompt),
  ids: Int32Array.from(ids),
  logprobs: new Float32Array(ids.length),
})

/** What these nodes are in a run, each list by a recorder of its own, as after a restart. */
function recorded(...lists: readonly (readonly MessageNode[])[]) {
  const folder = temporaryFolder()
  const start = { kind: 'attempt-start', rollout: 'r', attempt: 1, parent: null, task: 0, sample: 0, at: 1 } as const
  const entries: JournalEntry[] = [start]
  for (const nodes of lists) {
    const recorder = new AttemptRecorder(journalInto(entries), 'r', 1)
    for (const node of nodes) recorder.node(node, JSON.stringify(node.message))
  }
  applyAll(folder.path, entries)
  const reader = RunReader.open(folder.path)
  return {
    reader,
    path: folder.path,
    /** How many tokens of each prompt are stored. */
    stored: entries.flatMap((entry) => (entry.kind === 'node' ? (entry.promptIds?.length ?? 0) : [])),
    [Symbol.dispose]: () => {
      reader[Symbol.dispose]()
      folder[Symbol.dispose]()
    },
  }
}

test('a prompt that extends the previous turn is stored as its new part, and read whole', () => {
  const nodes = [
    sampled(0, tokensOf([1, 2, 3], [4, 5])),
    sampled(1, tokensOf([1, 2, 3, 4, 5, 6], [7])),
    // Nothing new at all.
    sampled(2, tokensOf([1, 2, 3, 4, 5, 6, 7], [8])),
    // The reply came back as another token.
    sampled(3, tokensOf([1, 2, 3, 4, 5, 6, 7, 9], [10])),
    // Shorter than what came before.
    sampled(4, tokensOf([1, 2], [3])),
    sampled(5, tokensOf([1, 2, 3, 4], [5]), true),
    // Goes on from the one before the lost one.
    sampled(6, tokensOf([1, 2, 3, 6, 7], [8])),
  ]
  using run = recorded(nodes)
  expect(run.stored).toEqual([3, 1, 0, 8, 2, 1, 2])
  expect(run.reader.nodes('r', 1)).toEqual(nodes)
  expect(run.reader.integrity()).toEqual([])
})

test('interleaved conversations are each stored as their new parts', () => {
  const turns = Array.from({ length: 4 }, (_, talk) => ({ talk, seen: [100 * talk] }))
  const nodes: MessageNode[] = []
  const ask = (turn: { talk: number; seen: number[] }): void => {
    const prompt = [...turn.seen, 7]
    nodes.push(sampled(nodes.length, tokensOf(prompt, [8, 9])))
    turn.seen = [...prompt, 8, 9]
  }
  for (let round = 0; round < 5; round += 1) for (const turn of turns) ask(turn)
  using run = recorded(nodes)
  expect(run.stored).toEqual([...turns.map(() => 2), ...Array.from({ length: 16 }, () => 1)])
  expect(run.reader.nodes('r', 1)).toEqual(nodes)
})

test('with more conversations than are remembered, prompts are stored and read whole', () => {
  const nodes: MessageNode[] = []
  for (let round = 0; round < 4; round += 1) {
    for (let talk = 0; talk < 5; talk += 1) {
      const before = nodes[nodes.length - 5]?.tokens
      const prompt = before?.promptIds ? [...before.promptIds, ...before.ids, 7] : [100 * talk]
      nodes.push(sampled(nodes.length, tokensOf(prompt, [8])))
    }
  }
  using run = recorded(nodes.slice(0, 7), nodes.slice(7))
  expect(run.stored).toEqual(nodes.map(({ tokens }) => tokens?.promptIds?.length))
  expect(run.reader.nodes('r', 1)).toEqual(nodes)
})

test('after a restart the first prompt is stored whole', () => {
  const before = sampled(0, tokensOf([1, 2], [3]))
  const after = sampled(1, tokensOf([1, 2, 3, 4], [5]))
  const last = sampled(2, tokensOf([1, 2, 3, 4, 5, 6], [7]))
  using run = recorded([before], [after, last])
  expect(run.stored).toEqual([2, 4, 1])
  expect(run.reader.nodes('r', 1)).toEqual([before, after, last])
  expect(run.reader.integrity()).toEqual([])
})

test('sessions of every kind are read unchanged, wherever the writer was replaced', () => {
  using folder = temporaryFolder()
  const sessions = Array.from({ length: 100 }, (_, seed) => randomSession({ seed, samples: 40, gaps: seed % 3 === 0 }))
  const entries: JournalEntry[] = []
  for (const [index, { nodes }] of sessions.entries()) {
    const cut = (index * 37) % nodes.length
    for (const part of [nodes.slice(0, cut), nodes.slice(cut)]) {
      const recorder = new AttemptRecorder(journalInto(entries), `r${index}`, 1)
      for (const node of part) recorder.node(node, JSON.stringify(node.message))
    }
  }
  applyAll(folder.path, entries)
  using reader = RunReader.open(folder.path)
  for (const [index, { nodes }] of sessions.entries()) expect(reader.nodes(`r${index}`, 1)).toEqual(nodes)
})

test('a long conversation is stored in the space of its tokens, not of all its prompts', () => {
  const nodes: MessageNode[] = []
  let seen: number[] = []
  for (let seq = 0; seq < 200; seq += 1) {
    const prompt = [...seen, seq, seq + 1, seq + 2]
    nodes.push(sampled(seq, tokensOf(prompt, [seq, seq])))
    seen = [...prompt, seq, seq]
  }
  using run = recorded(nodes)
  expect(run.stored.reduce((sum, count) => sum + count, 0)).toBe(200 * 3)
  expect(run.reader.nodes('r', 1)).toEqual(nodes)
})

test('a prompt whose base message is lost is reported, not reconstructed', () => {
  using run = recorded([sampled(0, tokensOf([1], [2])), sampled(1, tokensOf([1, 2, 3], [4]))])
  {
    using database = new DatabaseSync(join(run.path, runFiles.database))
    database.exec('UPDATE node SET prompt_ids = NULL WHERE seq = 0')
  }
  expect(run.reader.integrity()).toEqual([
    'rollout r attempt 1: the prompt of message 1 has lost the message it builds on',
  ])
  expect(() => run.reader.nodes('r', 1)).toThrow(expect.objectContaining({ code: 'store_failed' }))
})

test('arrays of an entry are sent without their larger buffer, and the caller keeps its own', () => {
  const entries: JournalEntry[] = []
  const large = new Int32Array(1_000_000).fill(9)
  const recorder = new AttemptRecorder(journalInto(entries), 'r', 1)
  const logprobs = Float32Array.of(-0.5, -Infinity)
  const node = sampled(0, { promptIds: large.subarray(0, 4), ids: large.subarray(500, 502), logprobs })
  recorder.node(node, JSON.stringify(node.message))
  const [entry] = structuredClone(entries)
  expect(entry).toMatchObject({ promptIds: Int32Array.of(9, 9, 9, 9), ids: Int32Array.of(9, 9), logprobs })
  expect(entry?.kind === 'node' && [entry.promptIds?.buffer.byteLength, entry.ids?.buffer.byteLength]).toEqual([16, 8])
  expect(large).toHaveLength(1_000_000)
})
