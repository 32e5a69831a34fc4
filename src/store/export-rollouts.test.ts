import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { CallRecord } from '../schema/index.ts'
import { AttemptRecorder } from './attempt-recorder.ts'
import { decodeBatch, encodeBatch } from './_batch-codec.ts'
import { exportRollouts } from './export-rollouts.ts'
import type { JournalEntry } from './journal-entry.ts'
import type { Journal } from './journal.ts'
import { runFiles } from './run-folder.ts'
import { RunReader } from './run-reader.ts'
import { applyAll } from '../../test/store/_apply.ts'
import { nodeEntry, rolloutEntries, temporaryFolder } from '../../test/store/_fixtures.ts'

test('the export is what rollouts.jsonl holds', async () => {
  using folder = temporaryFolder()
  applyAll(folder.path, [...rolloutEntries(1), ...rolloutEntries(2, { outcome: 'env_error' })])
  using reader = RunReader.open(folder.path)
  const lines = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl' }))
  expect(lines.join('')).toBe(readFileSync(join(folder.path, runFiles.lines), 'utf8'))
})

test('with tokens every node of the accepted attempt is in it', async () => {
  using folder = temporaryFolder()
  const tokens = { ids: Int32Array.of(5, 6), logprobs: Float32Array.of(-0.5, -Infinity), version: '7' }
  const extra = { ...nodeEntry({ rollout: '1-0', seq: 2 }), ...tokens, promptIds: Int32Array.of(1) }
  applyAll(folder.path, [...rolloutEntries(1), extra])
  using reader = RunReader.open(folder.path)
  const [line] = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', tokens: true }))
  const parsed = JSON.parse(line ?? '') as { messages: unknown[]; nodes: Record<string, unknown>[] }
  expect(parsed.messages).toHaveLength(2)
  expect(parsed.nodes.map((node) => node['seq'])).toEqual([0, 1, 2])
  expect(parsed.nodes[0]).not.toHaveProperty('tokens')
  expect(parsed.nodes[2]?.['tokens']).toEqual({ promptIds: [1], ids: [5, 6], logprobs: [-0.5, null], version: '7' })
})

test('routed experts come back as they were, and are exported as text', async () => {
  using folder = temporaryFolder()
  const small = { shape: [2, 1, 3], experts: Uint8Array.of(1, 2, 3, 4, 5, 6) }
  // Too long to be kept in line.
  const large = { shape: [100, 10, 200], experts: Int16Array.from({ length: 200_000 }, (_, index) => index % 300) }
  const recorded: JournalEntry[] = []
  const journal: Journal = {
    append: (entry) => void recorded.push(entry),
    appendAll: (entries) => void recorded.push(...entries),
    pressure: 0,
    durable: () => undefined,
    durableSoon: () => undefined,
    written: () => undefined,
  }
  const recorder = new AttemptRecorder(journal, '1-0', 1)
  const message = { role: 'assistant', content: 'x' } as const
  const call = { model: 'm' } as CallRecord
  for (const [index, routedExperts] of [small, large].entries()) {
    const tokens = { ids: Int32Array.of(7), logprobs: Float32Array.of(-1), routedExperts }
    const node = { seq: 2 + index, parent: 1 + index, hash: 'h', message, sampled: true, at: 1, call, tokens }
    recorder.node(node, JSON.stringify(message))
  }
  const batch = encodeBatch([...rolloutEntries(1), ...recorded])
  const decoded = decodeBatch(structuredClone(batch, { transfer: [batch.tokens as ArrayBuffer] }))
  applyAll(folder.path, decoded as JournalEntry[])
  using reader = RunReader.open(folder.path)
  const nodes = reader.nodes('1-0', 1).slice(2)
  expect(nodes.map((node) => node.tokens?.routedExperts)).toEqual([small, large])
  expect(nodes[0]).toMatchObject({ call, tokens: { ids: Int32Array.of(7) } })
  expect(nodes[0]).not.toHaveProperty('routedExperts')
  expect(reader.integrity()).toEqual([])
  const [line] = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl', tokens: true }))
  const parsed = JSON.parse(line ?? '') as { nodes: { tokens?: { routedExperts: unknown } }[] }
  expect(parsed.nodes[2]?.tokens?.routedExperts).toEqual({ shape: [2, 1, 3], dtype: 'uint8', data: 'AQIDBAUG' })
})
