/** How stories of the long task look at a run, and at what is left of it. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import type { RolloutRecord } from 'millrace'
import { RunReader } from '../../../src/store/index.ts'
import { isRunning } from './processes.ts'

/** Parent and sub-agents share a budget, and take 58 turns together. */
export const maxTurns = 100

/** How many of them there are; each is in the database and in the file of lines, once and with its end. */
export function expectOneRecordEach(folder: string, count: number): RolloutRecord[] {
  using reader = RunReader.open(folder)
  expect(reader.integrity()).toEqual([])
  expect([...reader.unfinished()]).toEqual([])
  const ended = [...reader.ended()]
  const ids = Array.from({ length: count }, (_, index) => `${index}-0`)
  expect(ended.map(({ rollout }) => rollout).toSorted()).toEqual(ids)
  const lines = readFileSync(join(folder, 'rollouts.jsonl'), 'utf8').trimEnd().split('\n')
  const records = lines.map((line) => JSON.parse(line) as RolloutRecord)
  expect(records.map(({ id }) => id).toSorted()).toEqual(ids)
  return records.toSorted((one, other) => one.task.index - other.task.index)
}

/** The keys of the calls whose answers are in the journal, sub-agents' included: of every attempt there was. */
export function recordedKeys(folder: string): string[] {
  using reader = RunReader.open(folder)
  const rollouts = [...reader.unfinished(), ...reader.ended()].map(({ rollout }) => rollout)
  const attempts = rollouts.flatMap((rollout) => reader.attempts(rollout).concat(reader.children(rollout)))
  return attempts.flatMap(({ rollout, attempt }) =>
    reader.nodes(rollout, attempt).flatMap(({ message }) => (message.role === 'tool' ? [message.tool_call_id] : [])),
  )
}

/** Processes that were started with this in their words, wherever they hang in the tree: the log of servers, for one. */
export function processesNaming(text: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid && isRunning(pid) && commandLineOf(pid).includes(text))
}

function commandLineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    // It ended since it was listed.
    return ''
  }
}
