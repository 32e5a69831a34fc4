/** What URLs do not have, so that one ends there which stands in a sentence or in JSON. */
const words = /[^\s"<>]+/g
/** Up to the last `@` before the path: a password may hold one. */
const credentials = /(?<=:\/\/)[^/?#]+(?=@)/g
/** What Azure cannot be asked without. */
const harmless = new Set(['api-version'])

/**
 * The text with a mark in place of user names, passwords and the values of queries, in whatever URLs it holds. A name says
 * too little of whether its value is a secret.
 */
export function withoutUrlSecrets(text: string, mark: string): string {
  if (!text.includes('://')) return text
  return text.replace(words, (word) => {
    const scheme = word.indexOf('://')
    if (scheme === -1) return word
    const clean = word.replace(credentials, mark)
    const start = clean.indexOf('?', scheme) + 1
    if (start === 0) return clean
    const hash = clean.indexOf('#', start)
    const end = hash === -1 ? clean.length : hash
    return clean.slice(0, start) + withoutValues(clean.slice(start, end), mark) + clean.slice(end)
  })
}

function withoutValues(query: string, mark: string): string {
  const pairs = query.split('&').map((pair) => {
    const [name = '', value = ''] = pair.split('=', 2)
    return value === '' || harmless.has(name) ? pair : `${name}=${mark}`
  })
  return pairs.join('&')
}
