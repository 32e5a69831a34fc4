import { MillraceError } from '../errors/index.ts'
import type { MessageNode, TokenRecord } from '../schema/index.ts'
import type { RunReader } from '../store/index.ts'
import type { RecordForm } from './codec-messages.ts'

/** Numbers and bytes are written in slices, so that no piece is much larger than a chunk. */
const numbersPerPiece = 16_384
/** Divisible by three: the base64 of the pieces is the base64 of the whole. */
const bytesPerPiece = 192 * 1024

/** One rollout as JSON, in pieces, straight from the run's database. Runs on a codec thread. */
export function* encodeRollout(reader: RunReader, id: string, form: RecordForm): Generator<string, void, void> {
  const record = reader.rollout(id)
  if (!record)
    throw new MillraceError('internal', `rollout ${id} has ended and is not in the store; please report this`)
  if (form === 'record') {
    yield JSON.stringify(record)
    return
  }
  yield `${JSON.stringify(record).slice(0, -1)},"nodes":[`
  const nodes = reader.nodes(id, record.attempt)
  for (const [index, node] of nodes.entries()) {
    if (index > 0) yield ','
    yield* encodeNode(node, form)
  }
  yield ']}'
}

function* encodeNode({ tokens, ...node }: MessageNode, form: RecordForm): Generator<string, void, void> {
  const head = JSON.stringify(node)
  if (!tokens) {
    yield head
    return
  }
  yield `${head.slice(0, -1)},"tokens":{`
  yield* encodeTokens(tokens, form)
  yield '}}'
}

function* encodeTokens(tokens: TokenRecord, form: RecordForm): Generator<string, void, void> {
  const array = form === 'tokens' ? encodeNumbers : encodeBytes
  yield '"ids":'
  yield* array(tokens.ids)
  yield ',"logprobs":'
  yield* array(tokens.logprobs)
  if (tokens.promptIds) {
    yield ',"promptIds":'
    yield* array(tokens.promptIds)
  }
  if (tokens.version !== undefined) yield `,"version":${JSON.stringify(tokens.version)}`
  if (tokens.versionSpans) yield `,"versionSpans":${JSON.stringify(tokens.versionSpans)}`
  if (tokens.routedExperts) {
    const { shape, experts } = tokens.routedExperts
    yield `,"routedExperts":{"shape":${JSON.stringify(shape)},`
    yield* encodeTyped(experts)
    yield '}'
  }
}

function* encodeNumbers(numbers: Int32Array | Float32Array): Generator<string, void, void> {
  yield '['
  for (let start = 0; start < numbers.length; start += numbersPerPiece) {
    const slice = numbers.subarray(start, start + numbersPerPiece)
    if (start > 0) yield ','
    yield slice instanceof Int32Array ? slice.join(',') : Array.from(slice, shortest).join(',')
  }
  yield ']'
}

/** Nine digits tell any two 32-bit floats apart; sixteen would double the reply. JSON has no infinity. */
function shortest(value: number): string {
  return Number.isFinite(value) ? String(Number(value.toPrecision(9))) : 'null'
}

function* encodeBytes(numbers: Int32Array | Float32Array): Generator<string, void, void> {
  yield '{'
  yield* encodeTyped(numbers)
  yield '}'
}

const dtypes = new Map<unknown, string>([
  [Uint8Array, 'uint8'],
  [Int16Array, 'int16'],
  [Int32Array, 'int32'],
  [Float32Array, 'float32'],
])

/** The memory of an array, little end first as on every machine Node runs on here, and what it is the memory of. */
function* encodeTyped(array: ArrayBufferView): Generator<string, void, void> {
  yield `"dtype":"${dtypes.get(array.constructor)}","data":"`
  yield* base64(array)
  yield '"'
}

function* base64({ buffer, byteOffset, byteLength }: ArrayBufferView): Generator<string, void, void> {
  for (let start = 0; start < byteLength; start += bytesPerPiece) {
    const length = Math.min(bytesPerPiece, byteLength - start)
    yield Buffer.from(buffer, byteOffset + start, length).toString('base64')
  }
}
