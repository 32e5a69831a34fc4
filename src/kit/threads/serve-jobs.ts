import { parentPort, type Transferable } from 'node:worker_threads'
import { MillraceError, type ErrorCode, type WireError } from '../../errors/index.ts'

export type ToPoolThread<Work> =
  | { readonly kind: 'start'; readonly job: number; readonly work: Work; readonly submittedAt: bigint }
  | { readonly kind: 'credit'; readonly job: number }
  | { readonly kind: 'cancel'; readonly job: number }
  | { readonly kind: 'close' }

export type FromPoolThread<Value, Output> =
  | { readonly kind: 'ready' }
  | { readonly kind: 'start-failed'; readonly error: WireError }
  | { readonly kind: 'output'; readonly job: number; readonly output: Output }
  | { readonly kind: 'end'; readonly job: number; readonly value: Value; readonly waitedMs: number }
  | { readonly kind: 'failed'; readonly job: number; readonly error: WireError; readonly waitedMs: number }

export interface JobResult<Value> {
  readonly value: Value
  readonly transfer?: readonly Transferable[]
}

export type RunJob<Work, Value, Output> = (
  work: Work,
  outputs: JobOutputs<Output>,
) => JobResult<Value> | Promise<JobResult<Value>>

interface ServedJobs<Work, Value, Output> {
  /** Prepares the thread. If it fails, the thread cannot be used, and the pool learns why. */
  readonly start: () => RunJob<Work, Value, Output> | Promise<RunJob<Work, Value, Output>>
  readonly errorCode: ErrorCode
  readonly onClose?: () => void
}

/** Outputs of a job that its reader has not taken. With this many the job waits. */
const maxUnderWay = 4

/** The thread's side of a `ThreadPool`: called once by the entry of the thread. */
export async function serveJobs<Work, Value, Output = never>({
  start,
  errorCode,
  onClose,
}: ServedJobs<Work, Value, Output>): Promise<void> {
  if (!parentPort) throw new MillraceError('internal', 'this file must be started as a thread')
  const port = parentPort
  const send = (message: FromPoolThread<Value, Output>, transfer: readonly Transferable[] = []): void =>
    port.postMessage(message, transfer)
  const open = new Map<number, JobOutputs<Output>>()

  const runJob = async (
    run: RunJob<Work, Value, Output>,
    { job, work, submittedAt }: Extract<ToPoolThread<Work>, { kind: 'start' }>,
  ): Promise<void> => {
    const waitedMs = Number(process.hrtime.bigint() - submittedAt) / 1e6
    const outputs = new JobOutputs<Output>((output, transfer) => send({ kind: 'output', job, output }, transfer))
    open.set(job, outputs)
    try {
      const { value, transfer } = await run(work, outputs)
      send({ kind: 'end', job, value, waitedMs }, transfer)
    } catch (error) {
      // Also for a value that cannot be cloned. The thread goes on: it may have other jobs.
      send({ kind: 'failed', job, error: MillraceError.from(error, errorCode).toWire(), waitedMs })
    } finally {
      open.delete(job)
    }
  }

  try {
    const run = await start()
    port.on('message', (message: ToPoolThread<Work>) => {
      switch (message.kind) {
        case 'start':
          void runJob(run, message)
          return
        case 'credit':
          open.get(message.job)?.credit()
          return
        case 'cancel':
          open.get(message.job)?.cancel()
          return
        case 'close':
          for (const outputs of open.values()) outputs.cancel()
          onClose?.()
          port.close()
          return
      }
    })
    send({ kind: 'ready' })
  } catch (error) {
    send({ kind: 'start-failed', error: MillraceError.from(error, errorCode).toWire() })
  }
}

export class JobOutputs<Output> {
  readonly #send: (output: Output, transfer: readonly Transferable[]) => void
  #credits = maxUnderWay
  #isCancelled = false
  #resume: (() => void) | undefined

  constructor(send: (output: Output, transfer: readonly Transferable[]) => void) {
    this.#send = send
  }

  /** Waits until there is room. Throws `cancelled` if nobody reads the outputs any more. */
  async send(output: Output, transfer: readonly Transferable[] = []): Promise<void> {
    while (this.#credits === 0 && !this.#isCancelled) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#resume = resolve
      await promise
    }
    if (this.#isCancelled) throw new MillraceError('cancelled', 'the caller no longer waits for this job')
    this.#credits -= 1
    this.#send(output, transfer)
  }

  credit(): void {
    this.#credits += 1
    this.#resume?.()
  }

  cancel(): void {
    this.#isCancelled = true
    this.#resume?.()
  }
}
