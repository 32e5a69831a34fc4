/** A run of characters that a URL can have: a URL in a sentence or in JSON ends where it does. */
const words = /[^\s"<>]+/g
/** User name and password, up to the last `@` before the path: a password may contain one. */
const credentials = /(?<=:\/\/)[^/?#]+(?=@)/g
/** Parameters whose values are shown: Azure needs this one in every request. */
const harmless = new Set(['api-version'])

/**
 * The text with a mark in place of user names, passwords and the values of queries in all its URLs. All values are replaced,
 * because a name says too little about whether its value is a secret.
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

/** What is secret in a URL: its user name, its password, both as the header that they become, and the values of its query. */
export function urlSecrets({ username, password, searchParams }: URL): string[] {
  const given = [username, password].filter((part) => part !== '').map(decoded)
  const pair = given.length === 0 ? [] : [Buffer.from(given.join(':')).toString('base64')]
  const values = [...searchParams].filter(([name]) => !harmless.has(name)).map(([, value]) => value)
  return [...given, ...pair, ...values]
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    // A lone `%` stands for itself.
    return part
  }
}
