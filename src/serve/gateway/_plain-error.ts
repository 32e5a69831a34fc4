/** A refusal before anybody knows which API the client speaks: each finds in it what it looks for. */
export interface PlainError {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** After it the connection closes. */
export function plainError(
  status: number,
  { code, message }: { readonly code: string; readonly message: string },
  headers: Readonly<Record<string, string>> = {},
): PlainError {
  const type = status >= 500 ? 'overloaded_error' : 'invalid_request_error'
  const body = JSON.stringify({ type: 'error', error: { type, code, message, param: null } })
  return {
    status,
    headers: {
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(body)),
      connection: 'close',
      ...headers,
    },
    body,
  }
}
