import { MillraceError, type ErrorCode } from '../../errors/index.ts'
import { saysContextLength } from './_context-length.ts'
import { isObject, textOrNothing } from './foreign-json.ts'
import type { Source } from './source.ts'

/** How many characters of a server's error go into our message, and into its data. */
const maxQuotedChars = 300
const maxSaidChars = 4096

/** A server's report of an error, read from any of the usual shapes. */
export interface ReportedError {
  /** Machine-readable: `code` and `type` of OpenAI and its imitators, joined. */
  readonly code: string
  /** `type` and `code` as the server sent them. */
  readonly saidType: string | undefined
  readonly saidCode: string | number | undefined
  /** The place in the request that the error is about. */
  readonly param: string | undefined
  readonly message: string
  /** The HTTP status the body itself names, as vLLM and OpenRouter do. */
  readonly status: number | undefined
}

interface ErrorWire {
  error?: unknown
  message?: unknown
  detail?: unknown
  code?: unknown
  type?: unknown
  param?: unknown
  /** Anthropic has the code in here. */
  details?: unknown
  /** OpenRouter has the error of the server behind it in here. */
  metadata?: unknown
}

/** Reads `{error: {...}}`, `{error: "..."}`, `{message}` (vLLM), `{detail}` (FastAPI), a list of these (Gemini) or plain text. */
export function readReportedError(answer: unknown): ReportedError {
  const body: unknown = Array.isArray(answer) ? answer[0] : answer
  if (!isObject(body)) return plainError(typeof body === 'string' ? body : '')
  const outer = body as ErrorWire
  if (typeof outer.error === 'string') return plainError(outer.error)
  const wire: ErrorWire = isObject(outer.error) ? outer.error : outer
  const said = wire.message ?? wire.detail
  return {
    code: [wire.code, wire.type].filter((part) => typeof part === 'string').join(' '),
    saidType: textOrNothing(wire.type),
    saidCode: typeof wire.code === 'number' ? wire.code : textOrNothing(wire.code ?? codeInDetails(wire.details)),
    param: textOrNothing(wire.param),
    message: (typeof said === 'string' ? said : JSON.stringify(said ?? body)) + passedOn(wire.metadata),
    status: statusIn(wire.code),
  }
}

function plainError(message: string): ReportedError {
  return { code: '', saidType: undefined, saidCode: undefined, param: undefined, message, status: undefined }
}

function passedOn(metadata: unknown): string {
  const { raw }: { raw?: unknown } = isObject(metadata) ? metadata : {}
  if (isObject(raw)) return `: ${JSON.stringify(raw)}`
  return typeof raw === 'string' && raw !== '' ? `: ${raw}` : ''
}

function codeInDetails(details: unknown): unknown {
  return isObject(details) && 'error_code' in details ? details.error_code : undefined
}

function statusIn(code: unknown): number | undefined {
  const status = typeof code === 'string' ? Number(code) : code
  return typeof status === 'number' && status >= 400 && status < 600 ? status : undefined
}

interface ReportedAnswer {
  readonly status?: number
  readonly reported: ReportedError
  readonly retryAfterMs?: number | undefined
  /** Whether the request asked for token ids and log-probabilities, which the server may not know. */
  readonly wantsTokens?: boolean
}

/**
 * The error for an answer that is not a reply, with what to do about it. The server's own words are in its data (`said`,
 * `saidType`, `saidCode`, `param`, `status`, `retryAfterMs`), for callers that pass them on. Secrets are taken out before the
 * words are cut: half a secret would not be found.
 */
export function reportedError(
  source: Source,
  { status, reported, retryAfterMs, wantsTokens = false }: ReportedAnswer,
): MillraceError {
  const code = codeFor(status ?? reported.status, reported)
  const { redaction } = source
  const shortText = (value: string | undefined): string | undefined =>
    value === undefined ? undefined : redaction.text(value, maxQuotedChars)
  const [saidType, param] = [shortText(reported.saidType), shortText(reported.param)]
  const saidCode = typeof reported.saidCode === 'number' ? reported.saidCode : shortText(reported.saidCode)
  const said = cut(redaction.text(reported.message, maxSaidChars + 1), maxSaidChars)
  const quoted = said === '' ? '' : `: ${cut(said, maxQuotedChars)}`
  const answer = status === undefined ? 'reported an error' : `answered ${status}`
  const message = `${source.url} ${answer}${quoted}. ${nextStep(code, { reported, wantsTokens }, source)}`
  return new MillraceError(code, message, {
    data: {
      backend: source.backend,
      ...(status !== undefined && { status }),
      ...(retryAfterMs !== undefined && { retryAfterMs: Math.round(retryAfterMs) }),
      ...(said !== '' && { said }),
      ...(saidType !== undefined && { saidType }),
      ...(saidCode !== undefined && { saidCode }),
      ...(param !== undefined && { param }),
    },
  })
}

function cut(text: string, maxChars: number): string {
  return text.length > maxChars ? `${text.slice(0, maxChars - 1)}…` : text
}

/** The code of an error by its status. Errors inside a 200 or a stream that name no status are told apart by their own code. */
function codeFor(status: number | undefined, reported: ReportedError): ErrorCode {
  switch (status) {
    case undefined:
      return codeWithoutStatus(reported)
    case 401:
    case 403:
      return 'model_auth'
    case 404:
      return 'model_not_found'
    case 408:
    // From a proxy (504) or Cloudflare (524): the server was silent for too long, perhaps only for this request.
    case 504:
    case 524:
      return 'model_timeout'
    case 409:
      return 'model_conflict'
    case 429:
      return isOutOfQuota(reported) ? 'model_rejected' : 'model_rate_limited'
    // The server, or a proxy before it, gave up while generating: TGI sends 424, nginx 499.
    case 424:
    case 499:
      return 'model_server_error'
    case 502:
    case 503:
    // From Cloudflare: the server is down or cannot be reached.
    case 520:
    case 521:
    case 522:
    case 523:
    case 530:
    case 529:
      return 'model_overloaded'
    case 400:
    case 413:
    case 422:
      return isContextLength(reported) ? 'context_length' : 'model_rejected'
    default:
      return status >= 500 ? 'model_server_error' : 'model_rejected'
  }
}

function codeWithoutStatus(reported: ReportedError): ErrorCode {
  const { code } = reported
  if (isContextLength(reported)) return 'context_length'
  if (isOutOfQuota(reported)) return 'model_rejected'
  if (code.includes('rate_limit')) return 'model_rate_limited'
  if (code.includes('overloaded') || code.includes('unavailable')) return 'model_overloaded'
  if (code.includes('timeout')) return 'model_timeout'
  if (code.includes('authentication') || code.includes('permission')) return 'model_auth'
  if (code.includes('not_found')) return 'model_not_found'
  if (code.includes('invalid') || code.includes('BadRequest')) return 'model_rejected'
  return 'model_server_error'
}

function isContextLength({ code, message }: ReportedError): boolean {
  return code.split(' ').some((part) => saysContextLength(part, message))
}

/** Codes of OpenAI and Moonshot for an account without credit. */
const noMoney = ['insufficient_quota', 'billing_', 'exceeded_current_quota']

/**
 * Whether the account has no credit left. Gemini says the same sentence about a quota per minute, but then says when to
 * retry.
 */
function isOutOfQuota({ code, message }: ReportedError): boolean {
  if (noMoney.some((word) => code.includes(word))) return true
  return message.includes('exceeded your current quota') && !/\bretry in \d/i.test(message)
}

function nextStep(
  code: ErrorCode,
  { reported, wantsTokens }: Required<Pick<ReportedAnswer, 'reported' | 'wantsTokens'>>,
  source: Source,
): string {
  if (code === 'model_auth') return keyStep(source)
  if (code === 'model_not_found') {
    return `Check the model name "${source.model}" and that the url ends where the API begins (usually /v1).`
  }
  if (code === 'context_length') {
    return 'The conversation no longer fits: ask for fewer tokens (maxTokens), or use a model with a larger context.'
  }
  if (code === 'model_rate_limited') {
    return 'If it stays so, lower maxConcurrency or set requestsPerMinute or tokensPerMinute.'
  }
  if (code === 'model_timeout') {
    return 'If it stays so, raise the time limit there, of the server or a proxy, or stream ("stream": true): what has begun to answer is rarely given up.'
  }
  if (code === 'model_rejected') return rejectedStep(reported, wantsTokens)
  return "If it stays so, look at the server's log."
}

function keyStep({ apiKeyEnv, lacksKey }: Source): string {
  const first = lacksKey ? `${apiKeyEnv} is not set: put the key there` : `Check the key in ${apiKeyEnv}`
  return `${first}, or name another variable: --api-key-env of eval and serve (apiKeyEnv in the model's config).`
}

/** OpenAI's words; other servers end such a reply as cut by its length. */
const outputLimit = 'model output limit was reached'

/** Whether a request was refused only because its token limit was too low for a reply. */
export function isShortOfTokens({ code, data }: MillraceError): boolean {
  return code === 'model_rejected' && typeof data['said'] === 'string' && data['said'].includes(outputLimit)
}

function rejectedStep(reported: ReportedError, wantsTokens: boolean): string {
  if (isOutOfQuota(reported))
    return 'The account has no quota left: add credit or use another key. It is not tried again.'
  if (reported.message.includes(outputLimit)) {
    return 'The model was still thinking when its tokens were used up: allow more of them (maxTokens).'
  }
  if (reported.message.includes('max_completion_tokens')) {
    return 'Leave maxTokens out and give max_completion_tokens in sampling.extra.'
  }
  const also = wantsTokens ? ' It may not know the fields that ask for tokens: leave out --tokens (captureTokens).' : ''
  return `The server does not accept this request as it is: change the sampling options, the tools or the messages.${also}`
}
