import { MillraceError } from '../../errors/index.ts'
import { AbortScope, backoffMs, nearestName, sleep, type Backoff } from '../../kit/index.ts'
import { apiPaths, type ApiName } from '../../schema/index.ts'
import {
  type Backend,
  type BackendReply,
  type BackendRequest,
  isOutputLimitTooLow,
  type ModelRequest,
} from '../../apis/index.ts'
import { HttpBackend } from '../backend/http-backend.ts'
import type { ModelClient } from '../model-client.ts'
import { Model, replyFlaw } from '../model/model.ts'
import { hasAllTokens } from '../token-history.ts'
import { type Ask, modelsIn, servedApis } from './probe.ts'

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

export interface PreflightOptions {
  readonly tryTimeoutMs?: number
  /** Whether the run asks for token ids and log-probabilities: then this does so, too. */
  readonly captureTokens?: boolean
  /** Whether the run ends rollouts by the versions of their weights. */
  readonly needsVersions?: boolean
}

interface Trial {
  /** Why the backend is not usable; undefined if it is. */
  readonly failure?: MillraceError | undefined
  readonly reply?: BackendReply
}

/**
 * Sends one tiny request to every backend before anything is spent, past the model's limits, because parking would hide an
 * unreachable server. Throws what would fail every rollout. A backend that is merely busy (429, 503) passes. Of several
 * backends one must answer, and none may refuse. Resolves to notices.
 */
export async function preflight(
  model: ModelClient,
  signal: AbortSignal,
  { tryTimeoutMs = defaultTryTimeoutMs, captureTokens = false, needsVersions = false }: PreflightOptions = {},
): Promise<readonly string[]> {
  const asked: ModelRequest = { ...request, captureTokens }
  if (!(model instanceof Model)) {
    const reply = await model.call(asked, { signal })
    if (reply.status !== 'complete') throw reply.error
    return captureTokens ? tokenNotices(model.name, [{ reply }], needsVersions) : []
  }
  const sent = await model.prepared(asked, signal)
  const trials = await Promise.all(model.backends.map((backend) => tryBackend(backend, sent, { signal, tryTimeoutMs })))
  const failures = trials.map(({ failure }) => failure)
  const refusal = failures.find((failure) => failure && !failure.retryable)
  if (refusal) throw refusal
  const silent = failures.filter((failure) => failure !== undefined)
  if (silent.length === failures.length) throw silent[0]
  const notices = silent.map(({ rawMessage }) => `a backend of ${model.name} did not answer, others did: ${rawMessage}`)
  return captureTokens ? [...notices, ...tokenNotices(model.name, trials, needsVersions)] : notices
}

function tokenNotices(model: string, trials: readonly Trial[], needsVersions: boolean): string[] {
  const replies = trials.flatMap(({ reply }) => reply ?? [])
  const lacking = replies.filter((reply) => !hasAllTokens(reply)).length
  if (lacking === 0) return needsVersions && replies.some(lacksVersion) ? [versionNotice(model)] : []
  const some = replies.length === 1 ? 'the first reply' : `${lacking} of the first ${replies.length} replies`
  return [
    `--tokens (captureTokens): ${some} of ${model} came without token ids and log-probabilities. Such replies cannot be trained on; the results say how many there are.`,
  ]
}

function lacksVersion({ tokens, laterVersion }: BackendReply): boolean {
  return tokens?.version === undefined && laterVersion?.before === undefined
}

function versionNotice(model: string): string {
  return `--max-versions-behind (maxVersionsBehind): a backend of ${model} does not say the version of its weights, so its rollouts do not end as stale. vLLM says it if it is started with VLLM_SERVER_DEV_MODE=1.`
}

interface TryOptions {
  readonly signal: AbortSignal
  readonly tryTimeoutMs: number
}

async function tryBackend(backend: Backend, asked: ModelRequest, options: TryOptions): Promise<Trial> {
  const { signal } = options
  for (let tries = 1; ; tries += 1) {
    const trial = await tryOnce(backend, { ...asked, retry: tries - 1, signal }, options)
    const { failure } = trial
    if (!failure || failure.code === 'model_overloaded' || failure.code === 'model_rate_limited') return passed(trial)
    // The server understood the request and ran out of tokens while thinking: it works.
    if (isOutputLimitTooLow(failure)) return passed(trial)
    if (backend instanceof HttpBackend) {
      if (failure.code === 'model_not_found') return { failure: await notFound(backend, failure, signal) }
      if (failure.code === 'model_auth') return { failure: refusedKey(backend, failure) }
    }
    if (failure.code === 'model_rejected' && asked.captureTokens) {
      const plain = await tryOnce(backend, { ...asked, captureTokens: false, retry: tries, signal }, options)
      return plain.failure ? trial : { failure: refusedTokens(backend, failure) }
    }
    if (!failure.retryable || tries === maxTries) return trial
    await sleep(backoffMs(pause, tries), signal)
  }
}

function passed({ reply }: Trial): Trial {
  return reply ? { reply } : {}
}

async function tryOnce(backend: Backend, asked: BackendRequest, { signal, tryTimeoutMs }: TryOptions): Promise<Trial> {
  using scope = new AbortScope(signal, tryTimeoutMs, () => {
    const message =
      `${backend.name} did not answer a tiny request in ${maxTries} tries of up to ${tryTimeoutMs / 1000} s each. Is the ` +
      'model loaded? If it needs longer than that, --no-preflight (preflight: false) skips this check.'
    return new MillraceError('model_timeout', message, { data: { backend: backend.name } })
  })
  try {
    const reply = await backend.send({ ...asked, signal: scope.signal })
    const failure = replyFlaw(reply, backend.name)
    return failure ? { failure } : { reply }
  } catch (error) {
    signal.throwIfAborted()
    return { failure: MillraceError.from(error, 'model_server_error') }
  }
}

function refusedTokens({ name }: Backend, failure: MillraceError): MillraceError {
  const hint = `${name} rejects requests for token ids and log-probabilities, but answers other requests: leave out --tokens (captureTokens), or use a server that returns them.`
  return reworded(failure, `${hint} ${failure.rawMessage}`)
}

/** A 404 means that the server has another API, or no model of that name, which is usually misspelt. */
async function notFound(backend: HttpBackend, failure: MillraceError, signal: AbortSignal): Promise<MillraceError> {
  const { api, base, name, upstreamName } = backend
  const ask: Ask = (path, body) => backend.ask(path, signal, { body: body && JSON.stringify(body) })
  const apis = await servedApis(base, ask)
  const [other] = apis
  if (other !== undefined && !apis.includes(api)) {
    const hint = `${name} has no ${apiPaths[api]}, but it has ${apiPaths[other]}: ${apiStep(other)}.`
    return reworded(failure, `${hint} ${failure.rawMessage}`)
  }
  const listing = await ask(`${base}/models`).catch(() => undefined)
  const offered = modelsIn(listing?.document).map(({ id }) => id)
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
