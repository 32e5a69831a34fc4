import { redactedPlaceholder as redacted, Redaction, withoutUrlSecrets } from '../../kit/index.ts'
import type { Json } from '../../schema/index.ts'

const secretWords = new Set([
  'key',
  'apikey',
  'token',
  'secret',
  'password',
  'passwd',
  'passphrase',
  'authorization',
  'auth',
  'credential',
  'credentials',
  'cookie',
  'bearer',
])
/** The last words of names that are no secrets: `apiKeyEnv` names a variable and `keyFile` a file. */
const namingWords = new Set(['env', 'file', 'path', 'name'])
/** The names of objects whose texts are all secret: the name of a header does not say what its value is for. */
const secretHolders = new Set(['headers'])

export function isRedacted(text: string): boolean {
  return text.includes(redacted)
}

export interface Redacted<T> {
  readonly value: T
  /** Where something was taken out, as `models.judge.headers.authorization`. */
  readonly paths: readonly string[]
}

/**
 * A copy that is safe to keep: without what is named like a secret, without the values of headers, without the given secret
 * values wherever they occur, and without the credentials and queries of URLs. Only text is taken out; `maxTokens: 100` is not a
 * secret. A short secret is only replaced where it is the whole text: inside other text it would be found by chance.
 */
export function redact<T extends Json>(config: T, secrets: readonly string[] = []): Redacted<T> {
  const paths: string[] = []
  const redaction = new Redaction(secrets)

  const cleanText = (text: string, path: string): string => {
    if (text !== '' && secrets.includes(text)) {
      paths.push(path)
      return redacted
    }
    const clean = redaction.text(withoutUrlSecrets(text, redacted))
    if (clean !== text) paths.push(path)
    return clean
  }

  const clean = (value: Json | undefined, path: string, isHolder = false): Json | undefined => {
    if (typeof value === 'string') return cleanText(value, path)
    if (Array.isArray(value)) return value.map((item: Json, index) => clean(item, `${path}[${index}]`) ?? null)
    if (value === null || typeof value !== 'object') return value
    const copy: Record<string, Json | undefined> = {}
    for (const [name, item] of Object.entries(value)) {
      const inner = path === '' ? name : `${path}.${name}`
      const isNamedSo = isSecretName(name) && (typeof item === 'string' || (typeof item === 'object' && item !== null))
      if (isNamedSo || (isHolder && typeof item === 'string' && item !== '')) {
        paths.push(inner)
        copy[name] = redacted
      } else {
        copy[name] = clean(item, inner, secretHolders.has(name.toLowerCase()))
      }
    }
    return copy
  }

  return { value: clean(config, '') as T, paths }
}

/** Judges a name by its words, in camelCase, snake_case or header-case: `tokenizer` and `maxTokens` are not about a token. */
function isSecretName(name: string): boolean {
  const words = name
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z0-9]+/)
  return !namingWords.has(words.at(-1) ?? '') && words.some((word) => secretWords.has(word))
}
