/** OpenSSL's and Node's names for a certificate that cannot be trusted. */
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

const notTls = new Set(['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG'])

/** Why a server cannot be reached until somebody changes something, and what to change. Undefined if trying again may help. */
export function permanentFailure(error: unknown): string | undefined {
  const { code, message } = networkCause(error)
  if (certificateProblems.has(code)) {
    const step = 'Trust its authority with caFile (or NODE_EXTRA_CA_CERTS), or correct the host name in the url.'
    return `the certificate is not trusted (${code}). ${step}`
  }
  if (isRefusedByProxy(code, message)) {
    const step = 'Give it a user name and a password in HTTPS_PROXY or HTTP_PROXY: http://user:password@host:port.'
    return `the proxy requires authentication (407). ${step}`
  }
  return notTls.has(code) ? 'the server does not use TLS. Should the url begin with http://?' : undefined
}

/** undici has no code for a proxy's 407, and its message differs between plain requests and tunnels; both contain `(407)`. */
function isRefusedByProxy(code: string, message: string): boolean {
  return (code === 'UND_ERR_INVALID_ARG' || code === 'UND_ERR_ABORTED') && message.includes('(407)')
}

/** The underlying network error: Node joins those of several addresses in an AggregateError, undici wraps those of a proxy. */
export function networkCause(error: unknown): { readonly code: string; readonly message: string } {
  if (error instanceof AggregateError && error.errors.length > 0) return networkCause(error.errors[0])
  if (!(error instanceof Error)) return { code: '', message: String(error) }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  const isWrapper = code === 'UND_ERR_PRX_TLS' || code === 'UND_ERR_PRX_CONN'
  if (isWrapper && error.cause !== undefined) return networkCause(error.cause)
  return { code, message: error.message }
}
