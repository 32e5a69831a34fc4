const scheme = 'bearer '

/** The token of an `authorization` header; undefined if it has another scheme, or there is none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization?.slice(0, scheme.length).toLowerCase() !== scheme) return undefined
  return authorization.slice(scheme.length)
}
