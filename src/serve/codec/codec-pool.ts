import { availableParallelism } from 'node:os'
import { MillraceError } from '../../errors/index.ts'
import { RecentWaits, Resource, ThreadPool, workerUrl } from '../../kit/index.ts'
import type { GroupOptions, RowCounts } from '../../rows/index.ts'
import type { DecodedBody, RecordForm } from './rollout-json.ts'
import type { ItemForm } from './reply-items.ts'
import type { RunRow } from '../compat/nemo-gym/run-row.ts'
import type { SeededRow, VerifiedRow } from '../compat/nemo-gym/session-row.ts'
import type { AgentRequest } from '../rollouts/agent-request.ts'
import type { RolloutHead } from '../rollouts/reply-schemas.ts'

export interface CodecStatus {
  readonly threads: number
  readonly maxThreads: number
  readonly jobs: number
  readonly queued: number
  /** From the request until a thread began it, for the last few hundred jobs. */
  readonly queueWaitP99Ms: number
  readonly queueWaitMaxMs: number
  /** From the request to the last byte handed over: a slow client shows here. */
  readonly replyP99Ms: number
}

export type CodecJob =
  | { readonly kind: 'encode'; readonly rollout: string; readonly form: RecordForm | ItemForm }
  | ({ readonly kind: 'rows' } & GroupOptions)
  | { readonly kind: 'heads'; readonly rollouts: readonly string[] }
  | { readonly kind: 'decode'; readonly body: readonly Uint8Array[] }
  | { readonly kind: 'aggregate'; readonly body: readonly Uint8Array[] }
  | { readonly kind: 'row'; readonly body: readonly Uint8Array[] }
  | { readonly kind: 'session-row'; readonly hasResponse: boolean; readonly body: readonly Uint8Array[] }
  | { readonly kind: 'agent-request'; readonly body: readonly Uint8Array[] }

export type CodecOutput = Uint8Array<ArrayBuffer> | readonly string[]

export interface DecodedHead extends Omit<DecodedBody, 'tasks'> {
  readonly hasTasks: boolean
}

export type CodecAnswer =
  | undefined
  | readonly RolloutHead[]
  | DecodedHead
  | RowCounts
  | RunRow
  | SeededRow
  | VerifiedRow
  | AgentRequest

/** A thread works on its jobs in turns, a chunk each. Each job holds its rollout in memory as long as its client reads. */
const jobsPerThread = 64
const crowdedJobs = 2
const maxQueued = 1_024

/** Threads that read rollouts from the run's own database and write them as JSON, and that parse large requests. */
export class CodecPool extends Resource {
  readonly #threads: ThreadPool<CodecJob, CodecAnswer, CodecOutput>
  readonly #maxThreads: number
  readonly #replies = new RecentWaits()

  private constructor(folder: string, maxThreads: number) {
    super()
    this.#maxThreads = maxThreads
    this.#threads = new ThreadPool({
      entry: workerUrl(import.meta, './codec-thread'),
      name: 'millrace-codec',
      workerData: folder,
      maxThreads: () => maxThreads,
      jobsPerThread,
      crowdedJobs,
      maxQueued,
      whenFull: 'try again in a moment',
      onAbort: 'cancel',
      died: (why) =>
        new MillraceError('worker_lost', `a thread that encodes replies died: ${why.message}`, { cause: why }),
    })
  }

  static async start(folder: string, maxThreads = Math.min(4, availableParallelism())): Promise<CodecPool> {
    const pool = new CodecPool(folder, maxThreads)
    try {
      await pool.#threads.warm()
      return pool
    } catch (error) {
      await pool.close()
      throw error
    }
  }

  status(): CodecStatus {
    const { threads, running, queued, waitP99Ms, waitMaxMs } = this.#threads.status()
    return {
      threads,
      maxThreads: this.#maxThreads,
      jobs: running,
      queued,
      queueWaitP99Ms: waitP99Ms,
      queueWaitMaxMs: waitMaxMs,
      replyP99Ms: this.#replies.p99Ms,
    }
  }

  /** An ended rollout as JSON, in chunks; `items`: as a list of NeMo Gym's items. Asking for the next chunk says that the last one was taken. */
  async *encode(rollout: string, form: RecordForm | ItemForm): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    yield* this.#chunks({ kind: 'encode', rollout, form })
  }

  /** The rows of an ended group in the binary form, in chunks, and their counts. */
  async *rows(group: GroupOptions): AsyncGenerator<Uint8Array<ArrayBuffer>, RowCounts, void> {
    return (yield* this.#chunks({ kind: 'rows', ...group })) as RowCounts
  }

  async *#chunks(
    job: CodecJob,
    transfer: readonly ArrayBuffer[] = [],
  ): AsyncGenerator<Uint8Array<ArrayBuffer>, CodecAnswer, void> {
    const startedAt = performance.now()
    const outputs = this.#threads.stream(job, { transfer })
    try {
      let next = await outputs.next()
      for (; !next.done; next = await outputs.next()) yield next.value as Uint8Array<ArrayBuffer>
      return next.value
    } finally {
      // Ends the job if its client has left; does nothing after its end.
      await outputs.return(undefined)
      this.#replies.add(performance.now() - startedAt)
    }
  }

  async heads(rollouts: readonly string[]): Promise<readonly RolloutHead[]> {
    return (await this.#threads.run({ kind: 'heads', rollouts })) as readonly RolloutHead[]
  }

  /** A complete request body in its parts, whose memory goes to the thread: they must not be used afterwards. */
  async decode(body: readonly Uint8Array[]): Promise<DecodedBody> {
    const tasks: string[] = []
    const outputs = this.#threads.stream({ kind: 'decode', body }, { transfer: ownMemory(body) })
    let next = await outputs.next()
    for (; !next.done; next = await outputs.next()) for (const text of next.value as readonly string[]) tasks.push(text)
    const { hasTasks, ...rest } = next.value as DecodedHead
    return { ...rest, ...(hasTasks && { tasks }) }
  }

  /** A row of NeMo Gym. The memory of the body goes to the thread. */
  async row(body: readonly Uint8Array[]): Promise<RunRow> {
    return (await this.#threads.run({ kind: 'row', body }, { transfer: ownMemory(body) })) as RunRow
  }

  /** The same of a row for a session. */
  async seededRow(body: readonly Uint8Array[]): Promise<SeededRow> {
    const job = { kind: 'session-row', hasResponse: false, body } as const
    return (await this.#threads.run(job, { transfer: ownMemory(body) })) as SeededRow
  }

  /** The same of a row with a response. Its text comes back. */
  async verifiedRow(body: readonly Uint8Array[]): Promise<{ readonly row: VerifiedRow; readonly text: Uint8Array }> {
    const job = { kind: 'session-row', hasResponse: true, body } as const
    const outputs = this.#threads.stream(job, { transfer: ownMemory(body) })
    let text = new Uint8Array()
    let next = await outputs.next()
    for (; !next.done; next = await outputs.next()) text = next.value as Uint8Array<ArrayBuffer>
    return { row: next.value as VerifiedRow, text }
  }

  /** A request of Responses to an agent. The memory of the body goes to the thread. */
  async agentRequest(body: readonly Uint8Array[]): Promise<AgentRequest> {
    return (await this.#threads.run({ kind: 'agent-request', body }, { transfer: ownMemory(body) })) as AgentRequest
  }

  /** NeMo Gym's metrics of the verify responses in this body, whose memory goes to the thread. */
  async *aggregate(body: readonly Uint8Array[]): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    yield* this.#chunks({ kind: 'aggregate', body }, ownMemory(body))
  }

  protected onClose(): Promise<void> {
    return this.#threads.close(new MillraceError('closed', 'the server is closing'))
  }
}

/** Memory that a part has to itself is transferred. Memory that parts share, as small ones may, is copied. */
function ownMemory(parts: readonly Uint8Array[]): ArrayBuffer[] {
  const buffers: ArrayBuffer[] = []
  for (const { buffer, byteLength } of parts) {
    if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffers.push(buffer)
  }
  return buffers
}
