import { type ErrorCode, MillraceError } from '../../errors/index.ts'
import { isJsonObject } from '../../schema/index.ts'
import { textOrUndefined } from '../reply-draft.ts'
import type { Source } from './reply-errors.ts'

/** How many characters of a server's error go into our message, and into its data. */
const maxQuotedChars = 300
const maxReportedChars = 4096

interface ReportedError {
  /** Machine-readable: `code` and `type` of OpenAI and its imitators, joined. */
  readonly code: string
  readonly saidType: string | undefined
  readonly saidCode: string | number | undefined
  readonly param: string | undefined
  readonly message: string
  /** The HTTP status the body itself names, as vLLM and OpenRouter do. */
  readonly status: number | undefined
}

/** Reads `{error: {...}}`, `{error: "..."}`, `{message}` (vLLM), `{detail}` (FastAPI), a list of these (Gemini) or plain text. */
export function readReportedError(answer: unknown): ReportedError {
  const body: unknown = Array.isArray(answer) ? answer[0] : answer
  if (!isJsonObject(body)) return plainError(typeof body === 'string' ? body : '')
  const { error } = body
  if (typeof error === 'string') return plainError(error)
  const { code, type, param, message, detail, details, metadata } = isJsonObject(error) ? error : body
  const said = message ?? detail
  // Anthropic has the code in the details.
  const saidCode = code ?? (isJsonObject(details) ? details['error_code'] : undefined)
  return {
    code: [code, type].filter((part) => typeof part === 'string').join(' '),
    saidType: textOrUndefined(type),
    saidCode: typeof saidCode === 'number' ? saidCode : textOrUndefined(saidCode),
    param: textOrUndefined(param),
    message: (typeof said === 'string' ? said : JSON.stringify(said ?? body)) + passedOn(metadata),
    status: statusIn(code),
  }
}

function plainError(message: string): ReportedError {
  return { code: '', saidType: undefined, saidCode: undefined, param: undefined, message, status: undefined }
}

/** The error of the server behind OpenRouter. */
function passedOn(metadata: unknown): string {
  const raw = isJsonObject(metadata) ? metadata['raw'] : undefined
  if (isJsonObject(raw)) return `: ${JSON.stringify(raw)}`
  return typeof raw === 'string' && raw !== '' ? `: ${raw}` : ''
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
  const said = cut(redaction.text(reported.message, maxReportedChars + 1), maxReportedChars)
  const quoted = said === '' ? '' : `: ${cut(said, maxQuotedChars)}`
  const answer = status === undefined ? 'reported an error' : `answered ${status}`
  const message = `${source.url} ${answer}${quoted}. ${nextStep(code, source, reported, wantsTokens)}`
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

/** The error that a document of an answer, or an event of a stream, reports. */
export function reportedIn(source: Source, document: unknown): MillraceError {
  return reportedError(source, { reported: readReportedError(document) })
}

function cut(text: string, maxChars: number): string {
  return text.length > maxChars ? `${text.slice(0, maxChars - 1)}…` : text
}

const codesOfStatuses: readonly (readonly [ErrorCode, readonly number[]])[] = [
  ['model_auth', [401, 403]],
  ['model_not_found', [404]],
  // From a proxy (504) or Cloudflare (524): the server was silent for too long, perhaps only for this request.
  ['model_timeout', [408, 504, 524]],
  ['model_conflict', [409]],
  // The server, or a proxy before it, gave up while generating: TGI sends 424, nginx 499.
  ['model_server_error', [424, 499]],
  // From Cloudflare (520 and above, without 529): the server is down or cannot be reached.
  ['model_overloaded', [502, 503, 520, 521, 522, 523, 529, 530]],
]

/** The code of an error by its status. Errors inside a 200 or a stream that name no status are told apart by their own code. */
function codeFor(status: number | undefined, reported: ReportedError): ErrorCode {
  if (status === undefined) return codeWithoutStatus(reported)
  if (status === 429) return isOutOfQuota(reported) ? 'model_rejected' : 'model_rate_limited'
  const mayBeTooLong = status === 400 || status === 413 || status === 422
  if (mayBeTooLong && isContextLength(reported)) return 'context_length'
  const [code] = codesOfStatuses.find(([, statuses]) => statuses.includes(status)) ?? []
  return code ?? (status >= 500 ? 'model_server_error' : 'model_rejected')
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
  const said = message.toLowerCase()
  return code.split(' ').some((part) => codes.has(part)) || phrases.some((phrase) => said.includes(phrase))
}

const noMoney = ['insufficient_quota', 'billing_', 'exceeded_current_quota']

/** Whether the account has no credit left. Of a quota per minute Gemini says the same, but then when to retry. */
function isOutOfQuota({ code, message }: ReportedError): boolean {
  if (noMoney.some((word) => code.includes(word))) return true
  return message.includes('exceeded your current quota') && !/\bretry in \d/i.test(message)
}

const nextSteps: Readonly<Partial<Record<ErrorCode, string>>> = {
  context_length:
    'The conversation is longer than the context: request fewer tokens (maxTokens), or use a model with a larger context.',
  model_rate_limited: 'If this persists, lower maxConcurrency or set requestsPerMinute or tokensPerMinute.',
  model_timeout:
    'If this persists, raise the time limit of the server or its proxy, or stream ("stream": true): servers rarely abort a reply that has begun.',
}

function nextStep(code: ErrorCode, source: Source, reported: ReportedError, wantsTokens: boolean): string {
  if (code === 'model_auth') return keyStep(source)
  if (code === 'model_not_found') {
    return `Check the model name "${source.model}" and that the url ends with the base path of the API (usually /v1).`
  }
  if (code === 'model_rejected') return rejectedStep(reported, wantsTokens)
  return nextSteps[code] ?? "If this persists, check the server's log."
}

function keyStep({ apiKeyEnv, lacksKey }: Source): string {
  const first = lacksKey ? `${apiKeyEnv} is not set: put the key there` : `Check the key in ${apiKeyEnv}`
  return `${first}, or name another variable: --api-key-env of eval and serve (apiKeyEnv in the model's config).`
}

/** OpenAI's words; other servers end such a reply as cut by its length. */
const outputLimit = 'model output limit was reached'

/** Whether a request was refused only because its token limit was too low for a reply. */
export function isOutputLimitTooLow({ code, data }: MillraceError): boolean {
  return code === 'model_rejected' && typeof data['said'] === 'string' && data['said'].includes(outputLimit)
}

function rejectedStep(reported: ReportedError, wantsTokens: boolean): string {
  if (isOutOfQuota(reported))
    return 'The account has no quota left: add credit or use another key. The request is not retried.'
  if (reported.message.includes(outputLimit)) {
    return 'The model used all its tokens for thinking: allow more tokens (maxTokens).'
  }
  if (reported.message.includes('max_completion_tokens')) {
    return 'Leave maxTokens out and give max_completion_tokens in sampling.extra.'
  }
  const also = wantsTokens
    ? ' It may not support the fields that request token ids: leave out --tokens (captureTokens).'
    : ''
  return `The server rejected this request: change the sampling options, the tools or the messages.${also}`
}

/**
 * Codes and phrases with which servers say that a conversation no longer fits. Gathered from OpenAI, vLLM, SGLang,
 * Anthropic, Gemini, llama.cpp, TGI, Groq, Bedrock, LM Studio, Ollama, Moonshot, Z.ai and DashScope; each line is one of them
 * and has a test.
 */
const codes = new Set(['context_length_exceeded', 'exceed_context_size_error', 'string_above_max_length'])

const phrases = [
  'maximum context length',
  'maximum model length',
  'maximum prompt length',
  'maximum number of tokens allowed',
  'context window',
  "model's context length",
  'available context size',
  'tokens) exceeds the maximum allowed length',
  'exceeds the context length',
  'greater than the context length',
  'exceeded model token limit',
  'prompt exceeds max length',
  'range of input length should be',
  'exceed context limit',
  'prompt is too long',
  'input is too long',
  'reduce the length of the messages',
  '`inputs` tokens + `max_new_tokens` must be',
]
