import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { exportRollouts } from './export-rollouts.ts'
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
