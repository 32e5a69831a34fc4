import { MillraceError } from '../../errors/index.ts'
import { permanentFailure, networkCause } from '../../http/index.ts'
import type { Redaction } from '../../kit/index.ts'

export interface Source {
  readonly backend: string
  readonly url: string
  readonly model: string
  readonly apiKeyEnv: string
  /** Whether there was no key to send: the variable is not set, and no header replaces it. */
  readonly lacksKey?: boolean
  /** Takes the backend's secrets out of its words. All of its words that go into an error pass here. */
  readonly redaction: Redaction
}

const maxQuotedChars = 80

/** The error for an answer that stopped before the backend said why: a part of it is no reply. */
export function truncatedReply(source: Source, detail: string, cause?: unknown): MillraceError {
  return truncated(source, `was cut off: ${detail}. If this persists, check the server's log.`, cause)
}

/** The error for an answer that came whole, and then was lost on our side. */
export function lostReply(source: Source, cause: unknown): MillraceError {
  const why = cause instanceof Error ? cause.message : String(cause)
  return truncated(source, `could not be decoded on its thread: ${why}. The request is sent again.`, cause)
}

function truncated(source: Source, text: string, cause: unknown): MillraceError {
  return new MillraceError('model_truncated', `the reply of ${source.url} ${source.redaction.text(text)}`, {
    data: { backend: source.backend },
    cause: cleanCause(source, cause),
  })
}

export function malformedReply(source: Source, detail: string): MillraceError {
  const text = source.redaction.text(detail)
  return malformed(source, `cannot be read: ${text}. Check that the url belongs to the API in the model’s config.`)
}

/** The error for an answer, or an event of a stream, that should be JSON. Without its cause, which quotes the text as well. */
export function notJson(source: Source, what: string, text: string): MillraceError {
  return malformedReply(source, `${what} is not JSON: ${source.redaction.text(text, maxQuotedChars)}`)
}

export function oversizedReply(source: Source, maxBytes: number): MillraceError {
  const text = `is larger than ${maxBytes} bytes and was aborted. Request a shorter reply, for example with a lower max_tokens.`
  return malformed(source, text)
}

/** The error for an answer that is compressed, though nobody asked for that. */
export function packedReply(source: Source, encoding: string): MillraceError {
  const name = source.redaction.text(encoding)
  const text = `is compressed (content-encoding: ${name}), but the request did not accept compression. Turn compression off in the server, or in the proxy in front of it.`
  return malformed(source, text)
}

/** The error for an answer with bytes that are no text: decoding would replace them, and a reply would be recorded that nobody wrote. */
export function invalidUtf8(source: Source): MillraceError {
  return malformed(
    source,
    'is not UTF-8, which JSON and events require. Check the server, and the proxy in front of it.',
  )
}

function malformed({ url, backend }: Source, text: string): MillraceError {
  return new MillraceError('model_malformed', `the reply of ${url} ${text}`, { data: { backend } })
}

/** The cause of an error without secrets: an error of the HTTP parser holds the bytes that it could not read. */
function cleanCause({ redaction }: Source, cause: unknown): unknown {
  return cause instanceof Error ? redaction.error(cause) : cause
}

export function transportError(source: Source, error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  const { code, message: cause } = networkCause(error)
  const message = source.redaction.text(cause)
  const options = { data: { backend: source.backend, cause: code }, cause: cleanCause(source, error) }
  const lasting = permanentFailure(error)
  if (lasting !== undefined) return new MillraceError('model_rejected', `${source.url}: ${lasting}`, options)
  if (code === 'UND_ERR_DESTROYED' || code === 'UND_ERR_CLOSED') {
    return new MillraceError('closed', `the connections to ${source.backend} are closed`, options)
  }
  if (code === 'UND_ERR_INVALID_ARG') {
    const step = "Check the headers in the model's config."
    return new MillraceError('model_rejected', `${source.url}: ${message}. ${step}`, options)
  }
  const text = `${source.url} cannot be reached: ${message || code}. ${connectStep(code)}`
  return new MillraceError('model_connect', text, options)
}

function connectStep(code: string): string {
  if (code === 'ECONNREFUSED') return 'Is the server running, and is the port right?'
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'Is the host name right, and does DNS work here?'
  return 'Check the url, the network and HTTPS_PROXY.'
}
