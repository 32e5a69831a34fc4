import { MillraceError } from '../errors/index.ts'
import { AbortScope, backoffMs, nearestName, sleep, type Backoff } from '../kit/index.ts'
import { apiPaths, type ApiName } from '../schema/index.ts'
import type { Backend, ModelRequest } from './backend.ts'
import { HttpBackend } from './http/http-backend.ts'
import type { ModelClient } from './model-contract.ts'
import { Model } from './model.ts'
import { replyFlaw } from './_backend-faults.ts'
import { isShortOfTokens } from './wire/reported-error.ts'

/** Asks for 16 tokens, because some servers refuse to be asked for a single one. */
const request: ModelRequest = {
  messages: [{ role: 'user', content: 'Reply with the word ready.' }],
  tools: [],
  sampling: { maxTokens: 16 },
  captureTokens: false,
  sessionId: 'preflight',
}

const maxTries = 3
const defaultTryTimeoutMs = 30_000
const pause: Backoff = { firstMs: 500, factor: 2, maxMs: 2000 }
const maxListedModels = 20

/**
 * Sends one tiny request to every backend before anything is spent. Throws what would fail every rollout: a wrong key, name
 * or url, a request that is refused, a server that cannot be reached in three tries. The request does not go through the
 * model's limits, because parking would hide an unreachable server. A backend that is merely busy (429, 503) passes: that
 * costs time, not rollouts. Of several backends one must answer, and none may refuse. Resolves to notices
 * about those that did not answer.
 */
export async function preflight(
  model: ModelClient,
  signal: AbortSignal,
  { tryTimeoutMs = defaultTryTimeoutMs }: { readonly tryTimeoutMs?: number } = {},
): Promise<readonly string[]> {
  if (!(model instanceof Model)) {
    const reply = await model.call(request, { signal })
    if (reply.status !== 'complete') throw reply.error
    return []
  }
  const failures = await Promise.all(model.backends.map((backend) => tryBackend(backend, signal, tryTimeoutMs)))
  const refusal = failures.find((failure) => failure && !failure.retryable)
  if (refusal) throw refusal
  const silent = failures.filter((failure) => failure !== undefined)
  if (silent.length === failures.length) throw silent[0]
  return silent.map(({ rawMessage }) => `a backend of ${model.name} did not answer, others did: ${rawMessage}`)
}

/** Why the backend is not usable, or undefined if it is. */
async function tryBackend(
  backend: Backend,
  signal: AbortSignal,
  tryTimeoutMs: number,
): Promise<MillraceError | undefined> {
  for (let tries = 1; ; tries += 1) {
    const failure = await tryOnce(backend, signal, { retry: tries - 1, tryTimeoutMs })
    if (!failure || failure.code === 'model_overloaded' || failure.code === 'model_rate_limited') return undefined
    // The server understood the request and ran out of tokens while thinking: it works.
    if (isShortOfTokens(failure)) return undefined
    if (backend instanceof HttpBackend) {
      if (failure.code === 'model_not_found') return notFound(backend, failure, signal)
      if (failure.code === 'model_auth') return refusedKey(backend, failure)
    }
    if (!failure.retryable || tries === maxTries) return failure
    await sleep(backoffMs(pause, tries), signal)
  }
}

async function tryOnce(
  backend: Backend,
  signal: AbortSignal,
  { retry, tryTimeoutMs }: { readonly retry: number; readonly tryTimeoutMs: number },
): Promise<MillraceError | undefined> {
  using scope = new AbortScope(signal, tryTimeoutMs, () => {
    const message =
      `${backend.name} did not answer a tiny request in ${maxTries} tries of up to ${tryTimeoutMs / 1000} s each. Is the ` +
      'model loaded? If it needs longer than that, --no-preflight (preflight: false) starts without asking.'
    return new MillraceError('model_timeout', message, { data: { backend: backend.name } })
  })
  try {
    const reply = await backend.send({ ...request, retry, signal: scope.signal })
    return replyFlaw(reply, backend.name)
  } catch (error) {
    signal.throwIfAborted()
    return MillraceError.from(error, 'model_server_error')
  }
}

/**
 * Says what a 404 means: the server has another API than the one it was asked in, or no model of that name. An unknown
 * name is usually a misspelt one, so the name that was meant comes first.
 */
async function notFound(backend: HttpBackend, failure: MillraceError, signal: AbortSignal): Promise<MillraceError> {
  const { api, name, upstreamName } = backend
  const other = await otherApi(backend, signal)
  if (other !== undefined) {
    const hint = `${name} has no ${apiPaths[api]}, but it has ${apiPaths[other]}: ${apiStep(other)}.`
    return reworded(failure, `${hint} ${failure.rawMessage}`)
  }
  const offered = await backend.listModels(signal).catch((): string[] => [])
  if (offered.length === 0) return failure
  const meant = offered.includes(upstreamName) ? undefined : nearestName(upstreamName, offered)
  const hint = meant === undefined ? '' : `Did you mean "${meant}"? `
  const shown = offered.toSorted().slice(0, maxListedModels).join(', ')
  const more = offered.length > maxListedModels ? ` and ${offered.length - maxListedModels} more` : ''
  return reworded(failure, `${hint}${failure.rawMessage} The server offers: ${shown}${more}.`)
}

/** A server that asks for a header of Anthropic's API in answer to another one may know no other. */
function refusedKey({ api }: HttpBackend, failure: MillraceError): MillraceError {
  const asksForMessages = /x-api-key|anthropic-version/i.test(String(failure.data['said']))
  if (api === 'messages' || !asksForMessages) return failure
  return reworded(failure, `${failure.rawMessage} If it speaks Anthropic's API, ${apiStep('messages')}.`)
}

function apiStep(api: ApiName): string {
  return `add --api ${api} (api: '${api}' in a model's config)`
}

function reworded(failure: MillraceError, message: string): MillraceError {
  return new MillraceError(failure.code, message, { data: failure.data, cause: failure })
}

/** The API that the server has, if it lacks the one that it was asked in. */
async function otherApi(backend: HttpBackend, signal: AbortSignal): Promise<ApiName | undefined> {
  const has = (api: ApiName) => backend.hasApi(api, signal).catch(() => undefined)
  if ((await has(backend.api)) !== false) return undefined
  const others = (Object.keys(apiPaths) as ApiName[]).filter((api) => api !== backend.api)
  const answers = await Promise.all(others.map(has))
  return others.find((_api, index) => answers[index] === true)
}
