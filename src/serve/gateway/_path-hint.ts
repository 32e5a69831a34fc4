import type { KnownRoutes } from '../_known-routes.ts'

/**
 * Words for a path that nothing is at: with the one that was probably meant, where a base url had a slash or a `/v1` too many
 * or too few; or with where all of them are listed.
 */
export function pathHint(method: string, path: string, routes: KnownRoutes): string {
  const plain = path.replaceAll(/\/{2,}/g, '/').replace(/\/$/, '')
  const candidates = [plain, plain.replace(/(\/v1)+\//, '/v1/'), plain.replace(/^(\/sessions\/[^/]+)?\//, '$1/v1/')]
  const meant = candidates.find((candidate) => routes.at(candidate).some((route) => route.method === method))
  return meant === undefined
    ? 'GET /openapi.json lists what there is'
    : `did you mean ${method} ${meant}? Check the base URL of the client`
}
