import { MillraceError } from '../errors/index.ts'
import { sleep } from '../kit/index.ts'
import { askedDelayMs } from './asked-delay.ts'
import type { BackendRequest, ModelRequest } from './backend.ts'
import { tryFailure } from './_backend-faults.ts'
import { cannotCount } from './_cannot-count.ts'
import { CallWait, type WaitLimits } from './_call-wait.ts'
import type { BackendRoute, BackendRoutes } from './_backend-routes.ts'
import type { ModelConfig } from './model-config.ts'
import type { CallHooks } from './model-contract.ts'
import { retryDelayMs, retryRule } from './retry-table.ts'

export interface CountingModel {
  readonly config: WaitLimits & Pick<ModelConfig, 'maxTries'>
  readonly routes: BackendRoutes
  readonly random: () => number
}

/** Asks backends that can count, one at a time, until one answers. The rules for retries and `maxTries` are those for replies. */
export async function countTokens(
  request: ModelRequest,
  hooks: CallHooks,
  { config, routes, random }: CountingModel,
): Promise<number> {
  const { signal } = hooks
  const failedAt = new Set<BackendRoute>()
  const wait = new CallWait(config, signal)
  for (let failures = 0; ;) {
    signal.throwIfAborted()
    const route = bestRoute(routes, failedAt)
    if (!route) throw cannotCount(config.name)
    const sentAt = performance.now()
    const counted = await countAt(route, { ...request, retry: failures, signal })
    if (typeof counted === 'number') return counted
    signal.throwIfAborted()
    hooks.onFailedTry?.(performance.now() - sentAt, counted)
    wait.failed(counted)
    failures += 1
    failedAt.add(route)
    const rule = retryRule(counted.code)
    if (!rule.retried || failures >= config.maxTries) throw counted
    const next = bestRoute(routes, failedAt)
    if (next && rankOf(next, failedAt) === 0) continue
    await pause(retryDelayMs(rule, { failures, retryAfterMs: askedDelayMs(counted), random }), hooks, wait)
  }
}

/** The best backend among those that can count: one that has not failed this call, is up, and has the least to do. */
function bestRoute(routes: BackendRoutes, failedAt: ReadonlySet<BackendRoute>): BackendRoute | undefined {
  let best: BackendRoute | undefined
  for (const route of routes.all) {
    if (!route.backend.countTokens) continue
    const gain = best ? rankOf(best, failedAt) - rankOf(route, failedAt) || best.inFlight - route.inFlight : 1
    if (gain > 0) best = route
  }
  return best
}

/** 0 is best: a backend that has not failed this call and whose gate is open. */
function rankOf(route: BackendRoute, failedAt: ReadonlySet<BackendRoute>): number {
  return (failedAt.has(route) ? 2 : 0) + (route.gate.canEnter ? 0 : 1)
}

/** The number of tokens, or the error. */
async function countAt(route: BackendRoute, request: BackendRequest): Promise<number | MillraceError> {
  const { backend } = route
  route.noteSent()
  try {
    const counted = await backend.countTokens?.(request)
    if (typeof counted === 'number' && counted >= 0) return counted
    return new MillraceError('model_malformed', `the backend ${backend.name} counted ${String(counted)} tokens.`)
  } catch (thrown) {
    return tryFailure(thrown, backend.name)
  } finally {
    route.noteEnded()
  }
}

async function pause(ms: number, hooks: CallHooks, wait: CallWait): Promise<void> {
  wait.start()
  hooks.onWaitStart?.()
  try {
    await sleep(ms, wait.signal)
  } finally {
    wait.stop()
    hooks.onWaitEnd?.()
  }
}
