const methods = ['GET', 'POST']

/**
 * Words for what has no route: with the path that was probably meant, where a base url had a `/v1` too many or too few;
 * with the methods that the path takes; or with where all of them are listed.
 */
export function noRoute(method: string, url: string, routes: readonly string[]): string {
  const [path = ''] = url.split('?', 1)
  const meant = [path.replace(/(\/v1)+\//, '/v1/'), path.replace(/^(\/sessions\/[^/]+)?\//, '$1/v1/')].find(
    (candidate) => candidate !== path && isKnown(method, candidate, routes),
  )
  const others = methods.filter((known) => isKnown(known, path, routes))
  const hint =
    meant !== undefined
      ? `did you mean ${method} ${meant}? Check the base URL of the client`
      : others.length > 0
        ? `it takes ${others.join(' and ')}`
        : 'GET /openapi.json lists what there is'
  return `there is no ${method} ${path}; ${hint}`
}

/** Routes are as `GET /v1/sessions/{id}`. */
function isKnown(method: string, path: string, routes: readonly string[]): boolean {
  const parts = path.split('/')
  return routes.some((route) => {
    const [verb, pattern = ''] = route.split(' ')
    const expected = pattern.split('/')
    return (
      verb === method &&
      expected.length === parts.length &&
      expected.every((part, index) => part === parts[index] || (part.startsWith('{') && parts[index] !== ''))
    )
  })
}
