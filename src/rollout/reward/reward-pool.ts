import { availableParallelism } from 'node:os'
import { type Environment, hasOffloadedReward, type OffloadedRewardContext, type RawOptions } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { Resource, type StopClock, ThreadPool, workerUrl } from '../../kit/index.ts'

export interface EnvironmentModule {
  readonly specifier: string
  readonly options: RawOptions
}

export interface OffloadedWork {
  readonly component: string
  /** The options are not in it: each thread has its own. */
  readonly input: Omit<OffloadedRewardContext<unknown, unknown>, 'options'>
}

export interface OffloadedJob extends OffloadedWork {
  readonly timeoutMs: number
  /** The clock of the reward as a whole. It stands still while this job waits for a thread. */
  readonly clock: StopClock
  readonly signal: AbortSignal
}

interface RewardPoolOptions extends EnvironmentModule {
  readonly maxThreads?: number | undefined
}

/** A waiting job holds its rollout's place, so this many means that something is wrong with the limits. */
const maxWaiting = 100_000

/** Threads that run offloaded rewards. A job that is not done in time is ended with its thread, which is replaced. */
export class RewardPool extends Resource {
  readonly #threads: ThreadPool<OffloadedWork, number | boolean>

  constructor({ specifier, options, maxThreads = availableParallelism() }: RewardPoolOptions) {
    super()
    this.#threads = new ThreadPool({
      entry: workerUrl(import.meta, './reward-thread'),
      name: 'millrace-reward',
      workerData: { specifier, options },
      maxThreads: () => maxThreads,
      jobsPerThread: 1,
      crowdedJobs: 1,
      maxQueued: maxWaiting,
      whenFull: 'lower --concurrency (concurrency)',
      onAbort: 'terminate',
      died: (why) => new MillraceError('reward_failed', `the thread it ran on died: ${why.message}`, { cause: why }),
    })
    // If it cannot start, the first reward fails and says why.
    this.#threads.warm().catch(() => {})
  }

  status(): ReturnType<ThreadPool<OffloadedWork, number | boolean>['status']> {
    return this.#threads.status()
  }

  /** Throws `reward_failed` if the reward throws, dies or takes too long; the signal's reason if that comes first. */
  async score({ component, input, timeoutMs, clock, signal }: OffloadedJob): Promise<number | boolean> {
    this.throwIfClosed()
    signal.throwIfAborted()
    clock.startWait()
    try {
      return await this.#threads.run(
        { component, input },
        {
          signal,
          timeout: { ms: timeoutMs, error: (place) => late(timeoutMs, place) },
          onWaited: () => clock.endWait(),
        },
      )
    } catch (error) {
      if (!(error instanceof DOMException) || error.name !== 'DataCloneError') throw error
      const why = `it is offloaded, but the values it reads cannot be sent to another thread: ${error.message}`
      throw new MillraceError('reward_failed', `${why}; tasks must be plain values`, { cause: error })
    }
  }

  protected onClose(): Promise<void> {
    return this.#threads.close(this.closedSignal.reason)
  }
}

function late(timeoutMs: number, place: string | undefined): MillraceError {
  const where = place === undefined ? '' : ` in ${place}`
  return new MillraceError(
    'reward_failed',
    `it took longer than its ${timeoutMs} ms and was stopped${where}; raise timeoutMs in offload(…, { timeoutMs })`,
    { data: { timeoutMs, ...(place !== undefined && { blockedBy: place }) } },
  )
}

/** The module that threads for offloaded rewards load; undefined if no reward is offloaded. Throws `env_invalid` if there is none. */
export function offloadedRewardModule(
  environment: Environment,
  module: EnvironmentModule | undefined,
): EnvironmentModule | undefined {
  if (!hasOffloadedReward(environment)) return undefined
  if (module) return module
  throw new MillraceError(
    'env_invalid',
    `${environment.name} has an offloaded reward, which runs on threads that load the environment themselves: give the ` +
      'environment as a module, by its path or name, not as an object',
  )
}
