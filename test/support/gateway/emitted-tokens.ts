import { expect } from 'vitest'
import type { Message } from '../../../src/schema/index.ts'
import type { SimulatorServer } from '../../../src/simulator/index.ts'
import { readBinaryRows, readJsonRows } from './read-rows.ts'
import type { OpenToAsk } from './scripted-conversation.ts'

/** One reply as the simulator says that it left. */
export type Emitted = ReturnType<SimulatorServer['simulator']['emitted']>['replies'][number]

interface VersionRun {
  readonly version: string | null
  readonly count: number
}

/** A row of `rows=interactions`, in the binary form: arrays as they are stored. */
export interface SampleRow {
  readonly kind: 'interaction'
  readonly session: string
  readonly interaction: string
  readonly parentInteraction: string | null
  readonly node: number
  readonly finishReason: string | null
  readonly discarded: string | null
  readonly messages: readonly Message[]
  readonly versions: readonly VersionRun[] | null
  readonly promptIds: Int32Array | null
  readonly ids: Int32Array | null
  readonly logprobs: Float32Array | null
  readonly routedExperts: ArrayLike<number> | null
}

export interface MergedRow {
  readonly kind: 'merged'
  readonly samples: readonly {
    readonly interaction: string
    readonly start: number
    readonly count: number
    readonly return: number | null
  }[]
  readonly splitAt: unknown
  readonly versions: readonly VersionRun[]
  readonly ids: Int32Array
  readonly mask: Uint8Array
  readonly logprobs: Float32Array
}

/** Over the wire, as a trainer's own process would ask for it. */
export async function emittedIn(simulator: SimulatorServer, session: string): Promise<readonly Emitted[]> {
  const response = await fetch(new URL(`/sim/emitted?session=${session}`, simulator.url))
  const { replies, dropped } = (await response.json()) as { replies: Emitted[]; dropped: number }
  expect(dropped).toBe(0)
  return replies
}

/** Every sample of a session, or of all, the lost ones too. */
export async function samplesOf(gateway: OpenToAsk, session?: string): Promise<SampleRow[]> {
  const query = `${session === undefined ? '' : `session=${session}&`}rows=interactions&include=discarded`
  const rows = await binaryRows<SampleRow>(gateway, query)
  await expectSameAsText(gateway, query, rows)
  return rows
}

export async function mergedRowsOf(gateway: OpenToAsk, session: string): Promise<MergedRow[]> {
  return await binaryRows<MergedRow>(gateway, `session=${session}&rows=merged`)
}

async function binaryRows<Row>(gateway: OpenToAsk, query: string): Promise<Row[]> {
  const { statusCode, body } = await gateway.open(`/v1/export?${query}&format=binary`, { method: 'GET' })
  const bytes = await body.bytes()
  expect(statusCode, Buffer.from(bytes).toString()).toBe(200)
  return readBinaryRows(bytes).filter(({ kind }) => kind !== 'end' && kind !== 'empty') as unknown as Row[]
}

/** JSON lines hold the same numbers. */
async function expectSameAsText(gateway: OpenToAsk, query: string, rows: readonly SampleRow[]): Promise<void> {
  const { body } = await gateway.open(`/v1/export?${query}&format=jsonl`, { method: 'GET' })
  const lines = readJsonRows(await body.bytes()).filter(({ kind }) => kind === 'interaction')
  const numbers = (array: Iterable<number> | null | undefined) => array && Array.from(array)
  expect(lines.map(({ promptIds, ids, logprobs }) => ({ promptIds, ids, logprobs }))).toEqual(
    rows.map((row) => ({
      promptIds: numbers(row.promptIds),
      ids: numbers(row.ids),
      logprobs: numbers(row.logprobs),
    })),
  )
}

/** What a complete reply must have left behind, in one form for both sides. */
export function emittedSample({ promptIds, ids, logprobs, versions, finish, routedExperts }: Emitted): object {
  return { promptIds, ids, logprobs, versions: runsOf(versions, ids.length), finish, experts: routedExperts ?? null }
}

export function recordedSample(row: SampleRow): object {
  return {
    promptIds: Array.from(row.promptIds ?? []),
    ids: Array.from(row.ids ?? []),
    logprobs: Array.from(row.logprobs ?? []),
    versions: row.versions,
    finish: row.finishReason,
    experts: row.routedExperts ? Array.from(row.routedExperts) : null,
  }
}

/** One row for a conversation that only went on: all that was seen and sampled, once. */
export function expectMerged(row: MergedRow, emitted: readonly Emitted[]): void {
  const last = emitted.at(-1)
  expect(Array.from(row.ids)).toEqual([...(last?.promptIds ?? []), ...(last?.ids ?? [])])
  expect(row.splitAt).toBeNull()
  const sampled = new Map<number, { readonly logprob: number; readonly version: string | null }>()
  for (const { promptIds, ids, logprobs, versions } of emitted) {
    expect(Array.from(row.ids.subarray(0, promptIds.length))).toEqual(promptIds)
    expect(Array.from(row.ids.subarray(promptIds.length, promptIds.length + ids.length))).toEqual(ids)
    for (const [index, logprob] of logprobs.entries()) {
      const version = versions.findLast(({ from }) => from <= index)?.version ?? null
      sampled.set(promptIds.length + index, { logprob, version })
    }
  }
  const at = (index: number) => sampled.get(index)
  expect(Array.from(row.mask)).toEqual(Array.from(row.ids, (_, index) => (at(index) ? 1 : 0)))
  expect(Array.from(row.logprobs)).toEqual(Array.from(row.ids, (_, index) => at(index)?.logprob ?? 0))
  const versions = row.versions.flatMap(({ version, count }) => Array.from({ length: count }, () => version))
  expect(versions).toEqual(Array.from(row.ids, (_, index) => at(index)?.version ?? null))
}

function runsOf(versions: Emitted['versions'], length: number): VersionRun[] {
  if (versions.length === 0) return length === 0 ? [] : [{ version: null, count: length }]
  return versions.map(({ from, version }, index) => ({
    version,
    count: (versions[index + 1]?.from ?? length) - from,
  }))
}
