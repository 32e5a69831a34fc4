import { causesOf } from './causes-of.ts'

/** What stands in place of a secret. */
export const redactedMark = '[redacted]'

/** Shorter values are words like `true`; replacing them would make holes in every message. */
const minSecretChars = 6

/** The most characters that one character of a secret takes up in a text: `\u002f`. */
const maxEncodedChars = 6

/**
 * Takes known secrets out of texts. A secret is found as it is, with its special characters escaped as in JSON, a URL or a page
 * of HTML, and within base64 of any text that contains it. A part of a secret is not found.
 */
export class Redaction {
  /** Undefined if there is nothing to look for. */
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

  /** The text, or its first `maxChars` characters, with a mark in place of each secret. A secret at the cut is replaced whole. */
  text(text: string, maxChars: number = text.length): string {
    if (!this.#pattern) return text.slice(0, maxChars)
    const seen = text.slice(0, maxChars + this.#longest)
    let clean = ''
    let end = 0
    for (const { 0: found, index } of seen.matchAll(this.#pattern)) {
      if (index >= maxChars) break
      clean += seen.slice(end, index) + redactedMark
      end = index + found.length
    }
    return clean + seen.slice(end, Math.max(end, maxChars))
  }

  /** The error itself if nothing in it is secret; else a new one with its message redacted. */
  error(error: Error): Error {
    const told = Array.from(causesOf(error), toldBy)
    if (told.every((text) => text !== undefined && this.text(text) === text)) return error
    return new Error(this.text(error.message))
  }
}

/** All that an error tells; undefined if it cannot be written down, and so cannot be looked at. */
function toldBy(error: Error): string | undefined {
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

/** A secret as it may stand in a text that is then encoded: as it is, in JSON, in a URL. */
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

/** Letters and digits are never escaped. */
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

/** A pattern for a number in hexadecimal, in small letters or capitals. */
function hex(number: number, digits: number): string {
  const text = number.toString(16).padStart(digits, '0')
  return text.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)
}
