import { MillraceError } from '../errors/index.ts'
import { AbortScope, backoffMs, nearestName, sleep, type Backoff } from '../kit/index.ts'
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
    if (failure.code === 'model_not_found') return withOffer(backend, failure, signal)
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

/** Adds the names that the server offers to a `model_not_found`: an unknown name is usually a misspelt one. */
async function withOffer(backend: Backend, failure: MillraceError, signal: AbortSignal): Promise<MillraceError> {
  if (!(backend instanceof HttpBackend)) return failure
  const offered = await backend.listModels(signal).catch((): string[] => [])
  if (offered.length === 0) return failure
  const meant = nearestName(backend.upstreamName, offered)
  const shown = offered.slice(0, maxListedModels).join(', ')
  const more = offered.length > maxListedModels ? ` and ${offered.length - maxListedModels} more` : ''
  const hint = meant === undefined ? '' : ` Did you mean "${meant}"?`
  const message = `${failure.rawMessage} The server offers: ${shown}${more}.${hint}`
  return new MillraceError('model_not_found', message, { data: failure.data, cause: failure })
}
