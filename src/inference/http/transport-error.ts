import { MillraceError } from '../../errors/index.ts'
import { cleanCause } from '../wire/broken-reply.ts'
import type { Source } from '../wire/source.ts'
import { lastingFailure, networkCause } from './unreachable.ts'

/** The coded error for a request that got no answer. */
export function transportError(source: Source, error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  const { code, message: said } = networkCause(error)
  const message = source.redaction.text(said)
  const options = { data: { backend: source.backend, cause: code }, cause: cleanCause(source, error) }
  const lasting = lastingFailure(error)
  if (lasting !== undefined) return new MillraceError('model_rejected', `${source.url}: ${lasting}`, options)
  switch (code) {
    case 'UND_ERR_INVALID_ARG':
      return new MillraceError(
        'model_rejected',
        `${source.url}: ${message}. Check the headers in the model's config.`,
        options,
      )
    case 'UND_ERR_DESTROYED':
    case 'UND_ERR_CLOSED':
      return new MillraceError('closed', `the connections to ${source.backend} are closed`, options)
    default:
      return new MillraceError(
        'model_connect',
        `${source.url} cannot be reached: ${message || code}. ${connectStep(code)}`,
        options,
      )
  }
}

function connectStep(code: string): string {
  if (code === 'ECONNREFUSED') return 'Is the server running, and is the port right?'
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'Is the host name right, and does DNS work here?'
  return 'Check the url, the network and HTTPS_PROXY.'
}
