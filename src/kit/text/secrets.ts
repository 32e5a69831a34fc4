import { hash, timingSafeEqual } from 'node:crypto'
import { causesOf } from './user-errors.ts'

export const redactedPlaceholder = '[redacted]'

/** Shorter values are words like `true`; replacing them would make holes in every message. */
const minSecretChars = 6

/** The most characters that one character of a secret takes up in a text: `\u002f`. */
const maxEncodedChars = 6

/**
 * Takes known secrets out of texts. A secret is found as it is, with its special characters escaped as in JSON, a URL or a page
 * of HTML, and within base64 of any text that contains it. A part of a secret is not found.
 */
export class Redaction {
  readonly #pattern: RegExp | undefined
  readonly #longest: number

  constructor(values: Iterable<string>) {
    const secrets = [...new Set(values)].filter(({ length }) => length >= minSecretChars)
    const forms = new Set([...secrets, ...secrets.flatMap(writtenForms).flatMap(base64Forms)])
    // The longest first, so that no rest of a secret is left if a shorter one is part of it.
    const sorted = [...forms].sort((a, b) => b.length - a.length)
    this.#pattern = sorted.length === 0 ? undefined : new RegExp(sorted.map(formPattern).join('|'), 'g')
    this.#longest = (sorted[0]?.length ?? 0) * maxEncodedChars
  }

  /** The text, or its first `maxChars` characters, with a placeholder for each secret. A secret at the cut is replaced whole. */
  text(text: string, maxChars: number = text.length): string {
    if (!this.#pattern) return text.slice(0, maxChars)
    const seen = text.slice(0, maxChars + this.#longest)
    let clean = ''
    let end = 0
    for (const { 0: found, index } of seen.matchAll(this.#pattern)) {
      if (index >= maxChars) break
      clean += seen.slice(end, index) + redactedPlaceholder
      end = index + found.length
    }
    return clean + seen.slice(end, Math.max(end, maxChars))
  }

  /** The error itself if nothing in it is secret; else a new one with its message redacted. */
  error(error: Error): Error {
    const texts = Array.from(causesOf(error), textOf)
    if (texts.every((text) => text !== undefined && this.text(text) === text)) return error
    return new Error(this.text(error.message))
  }
}

function textOf(error: Error): string | undefined {
  try {
    return `${error.stack} ${JSON.stringify(error)}`
  } catch {
    return undefined
  }
}

/**
 * What is secret in the value of a header: the value, and its token without the scheme, because `abc` is as secret as `Bearer abc`.
 * Of `Basic`, also what the token encodes: the password, and both it and the user name.
 */
export function headerSecrets(value: string): string[] {
  const [, scheme = '', bare] = /^(\w+) +(\S+)$/.exec(value) ?? []
  if (bare === undefined) return [value]
  if (scheme.toLowerCase() !== 'basic') return [value, bare]
  const pair = Buffer.from(bare, 'base64').toString('utf8')
  return [value, bare, pair, pair.slice(pair.indexOf(':') + 1)]
}

function writtenForms(secret: string): string[] {
  return [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret.toWellFormed())]
}

/**
 * The characters that a text with the secret in it has in base64, wherever the secret begins. Those at both ends are left out,
 * because they also depend on what is before and after it.
 */
function base64Forms(secret: string): string[] {
  return [0, 1, 2].flatMap((before) => {
    const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(secret)])
    const [start, end] = [Math.ceil((before * 8) / 6), Math.floor((bytes.length * 8) / 6)]
    return [bytes.toString('base64').slice(start, end), bytes.toString('base64url').slice(start, end)]
  })
}

/** A backslash, also as a URL has it. */
const backslash = String.raw`(?:\\|%(?:25){0,4}5[cC])`
/** Any character in a page: which one is not looked at. */
const inPage = String.raw`&(?:amp;){0,4}(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z]{2,8});`

/**
 * A pattern for a text with its special characters escaped or not, also more than once: JSON within JSON has several backslashes.
 * Repetitions are bounded, and no two in a row match the same, so that no text takes long.
 */
function formPattern(form: string): string {
  const parts = form.matchAll(/(\\*)([^\\])|\\+$/gu)
  return Array.from(parts, ([, before, character]) => {
    if (character === undefined) return `${backslash}{1,16}`
    if (before !== '') return `${backslash}{1,16}${characterPattern(character)}`
    return isPlain(character) ? character : `${backslash}{0,16}${characterPattern(character)}`
  }).join('')
}

function isPlain(character: string): boolean {
  return /^[A-Za-z0-9]$/.test(character)
}

function characterPattern(character: string): string {
  if (isPlain(character)) return character
  const inJson = JSON.stringify(character).slice(1, -1).replace(/^\\/, '')
  const plain = Array.from(new Set([character, inJson]), (each) => RegExp.escape(each))
  const units = Array.from({ length: character.length }, (_, at) => `u${hex(character.charCodeAt(at), 4)}`)
  const bytes = Array.from(Buffer.from(character), (byte) => `%(?:25){0,4}${hex(byte, 2)}`)
  const inForm = character === ' ' ? [String.raw`\+`] : []
  return `(?:${[...plain, units.join(`${backslash}{1,16}`), bytes.join(''), inPage, ...inForm].join('|')})`
}

function hex(number: number, digits: number): string {
  const text = number.toString(16).padStart(digits, '0')
  return text.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)
}

/** A run of characters that a URL can have: a URL in a sentence or in JSON ends where it does. */
const words = /[^\s"<>]+/g
/** User name and password, up to the last `@` before the path: a password may contain one. */
const credentials = /(?<=:\/\/)[^/?#]+(?=@)/g
/** Parameters whose values are shown: Azure needs this one in every request. */
const harmless = new Set(['api-version'])

/**
 * The text with a placeholder for user names, passwords and the values of queries in all its URLs. All values are replaced,
 * because a name says too little about whether its value is a secret.
 */
export function withoutUrlSecrets(text: string, placeholder: string): string {
  if (!text.includes('://')) return text
  return text.replace(words, (word) => {
    const scheme = word.indexOf('://')
    if (scheme === -1) return word
    const clean = word.replace(credentials, placeholder)
    const start = clean.indexOf('?', scheme) + 1
    if (start === 0) return clean
    const fragment = clean.indexOf('#', start)
    const end = fragment === -1 ? clean.length : fragment
    return clean.slice(0, start) + withoutValues(clean.slice(start, end), placeholder) + clean.slice(end)
  })
}

function withoutValues(query: string, placeholder: string): string {
  const pairs = query.split('&').map((pair) => {
    const [name = '', value = ''] = pair.split('=', 2)
    return value === '' || harmless.has(name) ? pair : `${name}=${placeholder}`
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

/** A secret. Two are compared in a time that says nothing about how much of one was right. */
export class Secret {
  /** A digest, so that lengths are equal whatever the text. */
  readonly #digest: Buffer

  constructor(text: string) {
    this.#digest = hash('sha256', text, 'buffer')
  }

  equals(other: Secret): boolean {
    return timingSafeEqual(this.#digest, other.#digest)
  }
}
