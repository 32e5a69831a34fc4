import { MillraceError } from '../errors/index.ts'
import { sleep } from '../kit/index.ts'
import { askedDelayMs } from './asked-delay.ts'
import type { BackendRequest, ModelRequest } from './backend.ts'
import { tryFailure } from './_backend-faults.ts'
import { cannotCount } from './_cannot-count.ts'
import type { Lane, Lanes } from './_lanes.ts'
import type { ModelConfig } from './model-config.ts'
import type { CallHooks } from './model-contract.ts'
import { retryDelayMs, retryRule } from './retry-table.ts'

export interface CountingModel {
  readonly config: Pick<ModelConfig, 'name' | 'maxTries'>
  readonly lanes: Lanes
  readonly random: () => number
}

/** Asks backends that can count, one at a time, until one answers. The rules for retries and `maxTries` are those for replies. */
export async function countTokens(
  request: ModelRequest,
  hooks: CallHooks,
  { config, lanes, random }: CountingModel,
): Promise<number> {
  const { signal } = hooks
  const failedAt = new Set<Lane>()
  for (let failures = 0; ;) {
    signal.throwIfAborted()
    const lane = bestLane(lanes, failedAt)
    if (!lane) throw cannotCount(config.name)
    const sentAt = performance.now()
    const counted = await countAt(lane, { ...request, retry: failures, signal })
    if (typeof counted === 'number') return counted
    signal.throwIfAborted()
    hooks.onFailedTry?.(performance.now() - sentAt, counted)
    failures += 1
    failedAt.add(lane)
    const rule = retryRule(counted.code)
    if (!rule.retried || failures >= config.maxTries) throw counted
    const next = bestLane(lanes, failedAt)
    if (next && rankOf(next, failedAt) === 0) continue
    await pause(retryDelayMs(rule, { failures, retryAfterMs: askedDelayMs(counted), random }), hooks)
  }
}

/** The best backend among those that can count: one that has not failed this call, is up, and has the least to do. */
function bestLane(lanes: Lanes, failedAt: ReadonlySet<Lane>): Lane | undefined {
  let best: Lane | undefined
  for (const lane of lanes.all) {
    if (!lane.backend.countTokens) continue
    const gain = best ? rankOf(best, failedAt) - rankOf(lane, failedAt) || best.inFlight - lane.inFlight : 1
    if (gain > 0) best = lane
  }
  return best
}

/** 0 is best: a backend that has not failed this call and whose gate is open. */
function rankOf(lane: Lane, failedAt: ReadonlySet<Lane>): number {
  return (failedAt.has(lane) ? 2 : 0) + (lane.gate.canEnter ? 0 : 1)
}

/** The number of tokens, or the error. */
async function countAt(lane: Lane, request: BackendRequest): Promise<number | MillraceError> {
  const { backend } = lane
  lane.depart()
  try {
    const counted = await backend.countTokens?.(request)
    if (typeof counted === 'number' && counted >= 0) return counted
    return new MillraceError('model_malformed', `the backend ${backend.name} counted ${String(counted)} tokens.`)
  } catch (thrown) {
    return tryFailure(thrown, backend.name)
  } finally {
    lane.arrive()
  }
}

async function pause(ms: number, hooks: CallHooks): Promise<void> {
  hooks.onWaitStart?.()
  try {
    await sleep(ms, hooks.signal)
  } finally {
    hooks.onWaitEnd?.()
  }
}
