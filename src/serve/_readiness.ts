import type { WorkerStatus } from '../rollout/index.ts'
import type { ServiceState } from './service-status.ts'

export type Readiness = { readonly isReady: true } | { readonly isReady: false; readonly why: string }

/** Whether a rollout that is sent now would run; if not, why. */
export function readinessOf(parts: {
  readonly state: ServiceState
  readonly hasStoreFailed: boolean
  readonly workers: readonly WorkerStatus[]
}): Readiness {
  const { state, hasStoreFailed, workers } = parts
  if (hasStoreFailed) return { isReady: false, why: 'the store takes nothing more' }
  if (state !== 'open') return { isReady: false, why: `the server is ${state}` }
  // None at all means that rollouts run on this very thread.
  if (workers.length === 0 || workers.some((worker) => worker.state === 'ready')) return { isReady: true }
  const states = workers.map(({ id, state: how }) => `worker ${id} is ${how}`)
  return { isReady: false, why: `no worker is ready: ${states.join(', ')}` }
}
