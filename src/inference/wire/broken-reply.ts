import { MillraceError } from '../../errors/index.ts'
import type { Source } from './source.ts'

/** How much of an answer that is no JSON is quoted. */
const maxQuotedChars = 80

/** The error for an answer that stopped before the backend said why: a part of it is no reply. */
export function truncatedReply(source: Source, detail: string, cause?: unknown): MillraceError {
  const said = source.redaction.text(detail)
  return new MillraceError(
    'model_truncated',
    `the reply of ${source.url} was cut: ${said}. If it stays so, look at the server's log.`,
    { data: { backend: source.backend }, cause: cleanCause(source, cause) },
  )
}

/** The error for an answer that came whole, and then was lost on our side. */
export function lostReply(source: Source, cause: unknown): MillraceError {
  const why = source.redaction.text(cause instanceof Error ? cause.message : String(cause))
  return new MillraceError(
    'model_truncated',
    `the reply of ${source.url} could not be decoded on its thread: ${why}. It is asked for again.`,
    { data: { backend: source.backend }, cause: cleanCause(source, cause) },
  )
}

/** The error for an answer that is not what the API promises. */
export function malformedReply(source: Source, detail: string): MillraceError {
  const said = source.redaction.text(detail)
  return malformed(
    source,
    `cannot be read: ${said}. Check that the url is that of the API that the model’s config names.`,
  )
}

/** The error for an answer, or an event of a stream, that should be JSON. Without its cause, which quotes the text as well. */
export function notJson(source: Source, what: string, text: string): MillraceError {
  return malformedReply(source, `${what} is no JSON: ${source.redaction.text(text, maxQuotedChars)}`)
}

/** The error for an answer that is longer than any that is read. */
export function oversizedReply(source: Source, maxBytes: number): MillraceError {
  const said = `is larger than ${maxBytes} bytes, and was given up. Ask for less at once, with a lower max_tokens say.`
  return malformed(source, said)
}

/** The error for an answer that is compressed, though nobody asked for that. */
export function packedReply(source: Source, encoding: string): MillraceError {
  const name = source.redaction.text(encoding)
  const said = `is compressed (content-encoding: ${name}), which was not asked for. Turn compression off in the server, or in the proxy before it.`
  return malformed(source, said)
}

/** The error for an answer with bytes that are no text: decoding would replace them, and a reply would be recorded that nobody wrote. */
export function brokenText(source: Source): MillraceError {
  return malformed(source, 'is not UTF-8, as JSON and events must be. Look at the server, or at the proxy before it.')
}

function malformed({ url, backend }: Source, said: string): MillraceError {
  return new MillraceError('model_malformed', `the reply of ${url} ${said}`, { data: { backend } })
}

/** The cause of an error without secrets: an error of the HTTP parser holds the bytes that it could not read. */
export function cleanCause({ redaction }: Source, cause: unknown): unknown {
  return cause instanceof Error ? redaction.error(cause) : cause
}
