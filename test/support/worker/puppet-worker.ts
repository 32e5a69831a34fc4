import { MessageChannel, Worker } from 'node:worker_threads'
import type { RolloutJob } from '../../../src/rollout/index.ts'
import { PoolWorker, type WorkerDeath } from '../../../src/worker/worker.ts'
import { resolveSupervision } from '../../../src/worker/supervision.ts'
import type { ChannelOptions, ToWorker, WorkerChannel } from '../../../src/worker/channel/channel.ts'

/** A worker whose other end is in the test's hands. */
export class PuppetWorker implements AsyncDisposable {
  readonly received: ToWorker[] = []
  readonly deaths: WorkerDeath[] = []
  readonly worker: PoolWorker
  /** What is looked into when the worker is silent: a thread that is idle. */
  readonly #thread = new Worker('setInterval(() => {}, 1_000)', { eval: true })
  readonly #exit = Promise.withResolvers<string>()
  #say: ChannelOptions['onMessage'] = () => {}
  isKilled = false

  constructor() {
    const { port1 } = new MessageChannel()
    port1.close()
    this.worker = new PoolWorker({
      id: 1,
      restarts: 0,
      start: { specifier: '', options: {}, settings: {} as never, models: [], workers: 1 },
      journal: port1,
      supervision: resolveSupervision({ silentAfterMs: 2_000, replaceAfterMs: 30_000 }),
      lease: () => ({}) as never,
      onBlocked: () => {},
      onMetrics: () => {},
      onChange: () => {},
      onDeath: (_, death) => void this.deaths.push(death),
      open: (options): WorkerChannel => {
        this.#say = options.onMessage
        return {
          kind: 'thread',
          thread: this.#thread,
          exited: this.#exit.promise,
          post: (message) => void this.received.push(message),
          kill: () => (this.isKilled = true),
        }
      },
    })
    this.say({ kind: 'ready' })
  }

  say(message: Parameters<ChannelOptions['onMessage']>[0]): void {
    this.#say(message)
  }

  exit(how: string): void {
    this.#exit.resolve(how)
  }

  run(id: string, signal: AbortSignal = new AbortController().signal): Promise<unknown> {
    return this.worker.ask({ kind: 'run', job: { id } as RolloutJob }, { key: id, task: 3, signal })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.exit('the test is over')
    await this.worker.close()
    await this.#thread.terminate()
  }
}
