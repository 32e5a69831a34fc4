import { nearestName } from '../../kit/index.ts'
import type { KnownRoutes } from '../_known-routes.ts'

/**
 * Words for a path that nothing is at: with the one that was probably meant, where a base url had a slash or a `/v1` too many
 * or too few, or the last name is misspelt; or with where all of them are listed.
 */
export function pathHint(method: string, path: string, routes: KnownRoutes): string {
  const plain = path.replaceAll(/\/{2,}/g, '/').replace(/\/$/, '')
  const candidates = [plain, plain.replace(/(\/v1)+\//, '/v1/'), plain.replace(/^(\/sessions\/[^/]+)?\//, '$1/v1/')]
  const meant = candidates.find((candidate) => routes.at(candidate).some((route) => route.method === method))
  if (meant !== undefined) return `did you mean ${method} ${meant}? Check the base URL of the client`
  const name = plain.slice(plain.lastIndexOf('/') + 1)
  const ending = nearestName(name, routes.endings(method, plain))
  if (ending !== undefined) return `did you mean ${method} ${plain.slice(0, -name.length)}${ending}?`
  return 'GET /openapi.json lists what there is'
}
