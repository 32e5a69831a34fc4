import { MillraceError } from '../../../errors/index.ts'
import { bytesOf, TimeSlice } from '../../../kit/index.ts'
import type { ExportedSequence, CallTokens } from './exported-calls.ts'

/** A tensor as AReaL's clients read it: its memory, little-endian, row by row. */
export interface Tensor {
  readonly bytes: Uint8Array
  readonly shape: readonly number[]
  readonly dtype: 'torch.int64' | 'torch.float32' | 'torch.bool'
}

export type TensorName = 'input_ids' | 'loss_mask' | 'logprobs' | 'versions' | 'attention_mask' | 'rewards'

export type TensorBatch = Readonly<Record<TensorName, Tensor>>

const bytesPerToken = 3 * 8 + 4 + 1
/** The version of a token whose engine names none: AReaL's own before the first update. */
const firstVersion = 0
const promptVersion = -1

/**
 * The six tensors of all sequences, padded on the right with 0. Throws if they would have more than `maxBytes`. Other work has its
 * turns meanwhile.
 */
export async function tensorBatch(sequences: readonly ExportedSequence[], maxBytes: number): Promise<TensorBatch> {
  const width = sequences.reduce((longest, { tokens }) => Math.max(longest, tokens.ids.length), 0)
  const count = sequences.length * width
  if (count * bytesPerToken > maxBytes) throw tooLarge(sequences.length, width, maxBytes)
  // 64-bit numbers as two halves, the low one first.
  const inputIds = new Int32Array(2 * count)
  const lossMask = new Int32Array(2 * count)
  const versions = new Int32Array(2 * count)
  const logprobs = new Float32Array(count)
  const attention = new Uint8Array(count)
  const rewards = Float32Array.from(sequences, ({ reward }) => reward)
  const slice = new TimeSlice()
  for (const [row, { tokens }] of sequences.entries()) {
    const start = row * width
    const end = start + tokens.ids.length
    for (const [index, id] of tokens.ids.entries()) inputIds[2 * (start + index)] = id
    versions.fill(promptVersion, 2 * start, 2 * end)
    attention.fill(1, start, end)
    for (const span of tokens.sampled) writeSpan({ lossMask, versions, logprobs }, start, span)
    if (slice.isOver) await slice.rest()
  }
  const shape = [sequences.length, width]
  return {
    input_ids: { bytes: bytesOf(inputIds), shape, dtype: 'torch.int64' },
    loss_mask: { bytes: bytesOf(lossMask), shape, dtype: 'torch.int64' },
    logprobs: { bytes: bytesOf(logprobs), shape, dtype: 'torch.float32' },
    versions: { bytes: bytesOf(versions), shape, dtype: 'torch.int64' },
    attention_mask: { bytes: attention, shape, dtype: 'torch.bool' },
    rewards: { bytes: bytesOf(rewards), shape: [sequences.length], dtype: 'torch.float32' },
  }
}

interface SpanArrays {
  readonly lossMask: Int32Array
  readonly versions: Int32Array
  readonly logprobs: Float32Array
}

function writeSpan(
  { lossMask, versions, logprobs }: SpanArrays,
  start: number,
  { from, logprobs: sampled, versions: runs }: CallTokens['sampled'][number],
): void {
  logprobs.set(sampled, start + from)
  let at = start + from
  for (const { version, count } of runs) {
    const [low, high] = halves(numberOf(version))
    for (let index = at; index < at + count; index += 1) {
      lossMask[2 * index] = 1
      versions[2 * index] = low
      versions[2 * index + 1] = high
    }
    at += count
  }
}

function numberOf(version: string | null): number {
  return version !== null && /^\d{1,15}$/.test(version) ? Number(version) : firstVersion
}

const half = 2 ** 32

function halves(value: number): readonly [low: number, high: number] {
  return [(value % half) | 0, Math.floor(value / half)]
}

function tooLarge(rows: number, width: number, maxBytes: number): MillraceError {
  const message = `an export has at most ${maxBytes} bytes of tensors, and ${rows} calls of up to ${width} tokens are more; export fewer sessions at once`
  return new MillraceError('usage', message, { data: { status: 413 } })
}

/** Divisible by three: the base64 of the pieces is the base64 of the whole. */
const bytesPerPiece = 192 * 1024

/** A tensor with its content as JSON, in pieces. */
export function* tensorPieces({ bytes, shape, dtype }: Tensor): Generator<string, void, void> {
  yield '{"type":"tensor","data":"'
  const { buffer, byteOffset, byteLength } = bytes
  for (let start = 0; start < byteLength; start += bytesPerPiece) {
    yield Buffer.from(buffer, byteOffset + start, Math.min(bytesPerPiece, byteLength - start)).toString('base64')
  }
  yield `","shape":${JSON.stringify(shape)},"dtype":"${dtype}"}`
}

interface TensorReference {
  readonly shard: string
  /** Host and port of the server that has the content, with the name of a user who may read it. */
  readonly address: string
}

/** A tensor without its content, which clients fetch. */
export function referenceTo({ shape, dtype }: Tensor, { shard, address }: TensorReference): object {
  const place = { shard_id: shard, node_addr: address }
  return {
    type: 'dataclass',
    class_path: 'areal.infra.rpc.rtensor.RTensor',
    data: {
      shard: { type: 'dataclass', class_path: 'areal.infra.rpc.rtensor.TensorShardInfo', data: place },
      data: { type: 'tensor', data: null, shape, dtype },
    },
  }
}
