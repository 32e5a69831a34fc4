import { MillraceError } from '../../errors/index.ts'
import type { Source } from '../wire/source.ts'

/** OpenSSL's and Node's names for a certificate that cannot be trusted. Trying again changes nothing about it. */
const certificateProblems = new Set([
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'CERT_UNTRUSTED',
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'CERT_REVOKED',
  'ERR_TLS_CERT_ALTNAME_INVALID',
])

/** A request that got no answer, as a coded error. */
export function transportError(source: Source, error: unknown): MillraceError {
  if (error instanceof MillraceError) return error
  const { code, message } = rootOf(error)
  const options = { data: { backend: source.backend, cause: code }, cause: error }
  if (certificateProblems.has(code)) {
    const step = 'Trust its authority with caFile (or NODE_EXTRA_CA_CERTS), or correct the host name in the url.'
    return new MillraceError(
      'model_rejected',
      `${source.url}: the certificate is not trusted (${code}). ${step}`,
      options,
    )
  }
  if (isRefusedByProxy(code, message)) {
    const step = 'Give it a user name and a password in HTTPS_PROXY or HTTP_PROXY: http://user:password@host:port.'
    return new MillraceError(
      'model_rejected',
      `${source.url}: the proxy on the way asks who we are (407). ${step}`,
      options,
    )
  }
  switch (code) {
    case 'EPROTO':
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
      return new MillraceError(
        'model_rejected',
        `${source.url} does not speak TLS. Should the url begin with http://?`,
        options,
      )
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

/** undici has no code for it, and other words where it carries requests and where it opens a tunnel. */
function isRefusedByProxy(code: string, message: string): boolean {
  return (code === 'UND_ERR_INVALID_ARG' || code === 'UND_ERR_ABORTED') && message.includes('(407)')
}

function connectStep(code: string): string {
  if (code === 'ECONNREFUSED') return 'Is the server running, and is the port right?'
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'Is the host name right, and does DNS work here?'
  return 'Check the url, the network and HTTPS_PROXY.'
}

/** Node joins the failures of several addresses in an AggregateError, and undici wraps those of a proxy. */
function rootOf(error: unknown): { code: string; message: string } {
  if (error instanceof AggregateError && error.errors.length > 0) return rootOf(error.errors[0])
  if (!(error instanceof Error)) return { code: '', message: String(error) }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  const isWrapper = code === 'UND_ERR_PRX_TLS' || code === 'UND_ERR_PRX_CONN'
  if (isWrapper && error.cause !== undefined) return rootOf(error.cause)
  return { code, message: error.message }
}
