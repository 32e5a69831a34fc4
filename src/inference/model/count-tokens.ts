import type { BackendRequest, ModelRequest, Source } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { retryAfterOf } from '../../http/index.ts'
import { sleep } from '../../kit/index.ts'
import { isMissing } from '../backend/short-request.ts'
import type { ModelConfig } from '../config.ts'
import type { CallHooks } from '../model-client.ts'
import type { BackendRoute, BackendRoutes } from './routing.ts'
import { CallWait, type WaitLimits } from './call-wait.ts'
import { retryDelayMs, retryRule, tryFailure } from './retry.ts'

interface CountingModel {
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
  const failedAt: BackendRoute[] = []
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
    failedAt.push(route)
    const rule = retryRule(counted.code)
    if (!rule.retried || failures >= config.maxTries) throw counted
    const next = bestRoute(routes, failedAt)
    if (next && rankOf(next, failedAt) === 0) continue
    await pause(retryDelayMs(rule, { failures, retryAfterMs: retryAfterOf(counted), random }), hooks, wait)
  }
}

/** The best backend among those that can count: one that has not failed this call, is up, and has the least to do. */
function bestRoute(routes: BackendRoutes, failedAt: readonly BackendRoute[]): BackendRoute | undefined {
  let best: BackendRoute | undefined
  for (const route of routes.all) {
    if (!route.backend.countTokens) continue
    const gain = best ? rankOf(best, failedAt) - rankOf(route, failedAt) || best.load.requests - route.load.requests : 1
    if (gain > 0) best = route
  }
  return best
}

/** 0 is best: a backend that has not failed this call and whose breaker lets requests through. The last one to fail is the worst. */
function rankOf(route: BackendRoute, failedAt: readonly BackendRoute[]): number {
  const failed = failedAt.includes(route) ? 4 : 0
  return failed + (route.breaker.canEnter ? 0 : 2) + (failedAt.at(-1) === route ? 1 : 0)
}

async function countAt(route: BackendRoute, request: BackendRequest): Promise<number | MillraceError> {
  const { backend } = route
  route.load.begin(0)
  try {
    const counted = await backend.countTokens?.(request)
    if (typeof counted === 'number' && counted >= 0) return counted
    return new MillraceError('model_malformed', `the backend ${backend.name} counted ${String(counted)} tokens.`)
  } catch (thrown) {
    return tryFailure(thrown, backend.name)
  } finally {
    route.load.end(0)
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

const whoCan =
  'Token counting works with vLLM and SGLang; servers of Responses such as OpenAI’s, if the model is configured with api: responses; servers of Messages such as Anthropic’s, with api: messages; and the simulator.'

/** The error if no backend of the model is of a kind that counts. An estimate would be taken for a count, so none is made. */
function cannotCount(model: string): MillraceError {
  const message = `model ${model} cannot count tokens: no backend of the model is known to support it. ${whoCan}`
  return new MillraceError('model_rejected', message, { data: { status: 400, param: 'model' } })
}

/** Older SGLang counts only plain prompts, and reports a missing `prompt` if it is sent a conversation. */
const missesPrompt = /'missing', 'loc': \('body', 'prompt'\)/

/** Says that the server cannot count if its answer shows that it is too old to; returns other failures unchanged. */
export function countFailure(thrown: unknown, { backend, url, model }: Source): unknown {
  if (!(thrown instanceof MillraceError)) return thrown
  const { status } = thrown.data
  const said = String(thrown.data['said'] ?? '')
  // A server that does not know the model also answers 404, but names the model.
  const lacksPath = isMissing(status) && !said.includes(model)
  if (!lacksPath && !missesPrompt.test(said)) return thrown
  const advice = `this model cannot count tokens: its server does not support it. ${whoCan}`
  const message = `${url} answered ${String(status)}: the server cannot count the tokens of a prompt. ${whoCan}`
  return new MillraceError('model_rejected', message, {
    data: { backend, status: 400, param: 'model', said: advice },
    cause: thrown,
  })
}
