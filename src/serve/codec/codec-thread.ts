/** The entry of a codec thread: it turns stored rollouts into JSON and large request bodies into tasks. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { workerData } from 'node:worker_threads'
import { serveJobs, type JobOutputs } from '../../kit/index.ts'
import { RunReader } from '../../store/index.ts'
import type { CodecAnswer, CodecJob, CodecOutput, DecodedHead } from './codec-pool.ts'
import type { RolloutHead } from '../rollouts/reply-schemas.ts'
import { groupRows, rowChunks } from '../../rows/index.ts'
import { decodeBody, listsOf, rolloutChunks, sized } from './rollout-json.ts'

const reader = RunReader.open(workerData as string)

await serveJobs<CodecJob, CodecAnswer, CodecOutput>({
  errorCode: 'internal',
  start: () => async (job, outputs) => ({ value: await run(job, outputs) }),
  onClose: () => reader[Symbol.dispose](),
})

async function run(job: CodecJob, outputs: JobOutputs<CodecOutput>): Promise<CodecAnswer> {
  if (job.kind === 'decode') return await decode(job.body, outputs)
  if (job.kind === 'heads') return await heads(job.rollouts)
  if (job.kind === 'aggregate') return await aggregate(job.body, outputs)
  if (job.kind === 'row') {
    const { decodeRow } = await import('../compat/nemo-gym/run-row.ts')
    return decodeRow(Buffer.concat(job.body))
  }
  if (job.kind === 'session-row') return await sessionRow(job, outputs)
  if (job.kind === 'agent-request') {
    const { readAgentRequest } = await import('../rollouts/agent-request.ts')
    return readAgentRequest(Buffer.concat(job.body))
  }
  const chunks =
    job.kind === 'rows' ? rowChunks(groupRows(reader, job), 'binary') : rolloutChunks(reader, job.rollout, job.form)
  let next = await chunks.next()
  for (; !next.done; next = await chunks.next()) {
    for (const bytes of sized(next.value)) await outputs.send(bytes, [bytes.buffer])
    // Others have their turn between two chunks, and credit can arrive.
    await nextTurn()
  }
  return next.value ?? undefined
}

/** Of a row with a response the text goes back: it is a part of the reply. */
async function sessionRow(
  { body, hasResponse }: Extract<CodecJob, { kind: 'session-row' }>,
  outputs: JobOutputs<CodecOutput>,
): Promise<CodecAnswer> {
  const { readSeededRow, readVerifiedRow } = await import('../compat/nemo-gym/session-row.ts')
  const text = Buffer.concat(body)
  if (!hasResponse) return readSeededRow(text)
  const row = readVerifiedRow(text)
  await outputs.send(text, [text.buffer])
  return row
}

async function decode(body: readonly Uint8Array[], outputs: JobOutputs<CodecOutput>): Promise<DecodedHead> {
  const { tasks, ...rest } = decodeBody(Buffer.concat(body))
  for (const texts of listsOf(tasks ?? [])) {
    await outputs.send(texts)
    await nextTurn()
  }
  return { ...rest, hasTasks: tasks !== undefined }
}

async function aggregate(body: readonly Uint8Array[], outputs: JobOutputs<CodecOutput>): Promise<undefined> {
  const { aggregateMetricsReply } = await import('../compat/nemo-gym/metrics/aggregate-metrics.ts')
  for (const bytes of sized(new TextEncoder().encode(aggregateMetricsReply(Buffer.concat(body))))) {
    await outputs.send(bytes, [bytes.buffer])
    await nextTurn()
  }
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
