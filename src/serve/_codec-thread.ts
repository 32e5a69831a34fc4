/** The entry of a codec thread: it turns stored rollouts into JSON and large request bodies into tasks. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { RunReader } from '../store/index.ts'
import { chunksOf } from './_chunks.ts'
import { CodecExchange } from './_codec-exchange.ts'
import { decodeBody, listsOf } from './_decode-body.ts'
import { encodeRollout } from './_encode-rollout.ts'
import type {
  CodecAnswer,
  CodecJob,
  CodecStart,
  DecodedHead,
  FromCodec,
  RolloutHead,
  ToCodec,
} from './codec-messages.ts'

const port = parentPort
if (!port) throw new MillraceError('internal', 'this file is the entry of a codec thread')
const send = (message: FromCodec, transfer: ArrayBuffer[] = []): void => port.postMessage(message, transfer)

const { folder } = workerData as CodecStart
const reader = RunReader.open(folder)
const exchanges = new Map<number, CodecExchange>()

port.on('message', (message: ToCodec) => {
  switch (message.kind) {
    case 'start':
      void carryOut(message)
      return
    case 'credit':
      exchanges.get(message.job)?.credit()
      return
    case 'cancel':
      exchanges.get(message.job)?.cancel()
      return
    case 'close':
      for (const exchange of exchanges.values()) exchange.cancel()
      reader[Symbol.dispose]()
      port.close()
      return
  }
})
send({ kind: 'ready' })

async function carryOut({ job, work, submittedAt }: Extract<ToCodec, { kind: 'start' }>): Promise<void> {
  send({ kind: 'begin', job, waitedMs: Number(process.hrtime.bigint() - submittedAt) / 1e6 })
  const exchange = new CodecExchange()
  exchanges.set(job, exchange)
  try {
    send({ kind: 'end', job, value: await answer(job, work, exchange) })
  } catch (error) {
    send({ kind: 'failed', job, error: MillraceError.from(error, 'internal').toWire() })
  } finally {
    exchanges.delete(job)
  }
}

function answer(job: number, work: CodecJob, exchange: CodecExchange): Promise<CodecAnswer> {
  if (work.kind === 'encode') return encode(job, work, exchange)
  return work.kind === 'decode' ? decode(job, work, exchange) : heads(work.rollouts)
}

async function encode(
  job: number,
  { rollout, form }: Extract<CodecJob, { kind: 'encode' }>,
  exchange: CodecExchange,
): Promise<undefined> {
  for (const bytes of chunksOf(encodeRollout(reader, rollout, form))) {
    await exchange.room()
    send({ kind: 'output', job, output: bytes }, [bytes.buffer])
    // Others have their turn between two chunks, and credit can arrive.
    await nextTurn()
  }
}

async function decode(
  job: number,
  { body }: Extract<CodecJob, { kind: 'decode' }>,
  exchange: CodecExchange,
): Promise<DecodedHead> {
  const { head, tasks } = decodeBody(Buffer.concat(body))
  for (const texts of listsOf(tasks ?? [])) {
    await exchange.room()
    send({ kind: 'output', job, output: texts })
    await nextTurn()
  }
  return { head, hasTasks: tasks !== undefined }
}

async function heads(rollouts: readonly string[]): Promise<readonly RolloutHead[]> {
  const found: RolloutHead[] = []
  for (const id of rollouts) {
    const record = reader.rollout(id)
    if (!record) continue
    const { task, sample, attempt, outcome, reward, turns, timing } = record
    const { startedAt, wallMs } = timing
    found.push({ id, task, sample, attempt, outcome, reward, turns, startedAt, wallMs })
    await nextTurn()
  }
  return found
}
