import type { WorkerStatus } from '../rollout/index.ts'
import type { ServiceState } from './service-status.ts'

export type Readiness = { readonly isReady: true } | { readonly isReady: false; readonly why: string }

/** Whether a rollout that is sent now would run; if not, why. */
export function readinessOf(parts: {
  readonly state: ServiceState
  readonly hasStoreFailed: boolean
  readonly takesWork: boolean
  readonly workers: readonly WorkerStatus[]
}): Readiness {
  const { state, hasStoreFailed, takesWork, workers } = parts
  if (hasStoreFailed) return { isReady: false, why: 'the store takes nothing more' }
  if (state !== 'open') return { isReady: false, why: `the server is ${state}` }
  if (takesWork) return { isReady: true }
  // Those in quarantine, below zero, are not for what is sent now.
  const states = workers.flatMap(({ id, state: how }) => (id > 0 ? [`worker ${id} is ${how}`] : []))
  return { isReady: false, why: `no worker is ready: ${states.join(', ') || 'none could be started so far'}` }
}
