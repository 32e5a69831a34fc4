import {
  closeBrace,
  comma,
  elementsEnd,
  isKey,
  keyBytes,
  keyEnd,
  nonSpace,
  notWalkable,
  openBrace,
  requirePlainKey,
  valueEnd,
} from '../../kit/index.ts'
import { Decimal } from './_decimal.ts'
import { scannedLogprobs } from './_growing-array.ts'

const logprobKey = keyBytes('logprob')

/**
 * Reads the log-probabilities in the list of objects that begins at `start`, one object for each token, and finds the end of
 * the list. No values if any of the objects has no number.
 */
export function readLogprobs(
  bytes: Uint8Array,
  start: number,
): { readonly end: number; readonly values: Float32Array<ArrayBuffer> | undefined } {
  const entries = new LogprobEntries(bytes)
  const end = elementsEnd(bytes, start, entries.entryEnd)
  return { end, values: entries.areNumbers ? entries.values.whole() : undefined }
}

/** The bytes before a value of an entry: the brace or the comma, the key and the colon. */
interface Lead {
  readonly at: number
  readonly length: number
  readonly isLogprob: boolean
}

/**
 * Reads the entries of a list. A server writes all entries alike, so the bytes before the values are not parsed, but
 * compared with those of an earlier entry, four at a time: scanning a reply takes a quarter to a third less time. Only one
 * list can be read at a time, because `values` is in shared memory.
 */
class LogprobEntries {
  readonly values = scannedLogprobs()
  areNumbers = true
  readonly #bytes: Uint8Array
  readonly #words: DataView
  readonly #decimal = new Decimal()
  /** The leads of the last entry that was parsed in full and has a number. */
  #leads: readonly Lead[] = []

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#words = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  }

  readonly entryEnd = (start: number): number => {
    const end = this.#alikeEnd(start)
    return end === -1 ? this.#walkedEnd(start) : end
  }

  /** The end of an entry that is written like the last one; -1 if it is written in another way. */
  #alikeEnd(start: number): number {
    const bytes = this.#bytes
    const leads = this.#leads
    if (leads.length === 0) return -1
    let at = start
    for (let index = 0; index < leads.length; index += 1) {
      const lead = leads[index] as Lead
      if (!this.#isSame(at, lead)) return -1
      at += lead.length
      at = lead.isLogprob ? this.#decimal.read(bytes, at) : valueEnd(bytes, at)
      if (at === -1) return -1
    }
    at = nonSpace(bytes, at)
    if (bytes[at] !== closeBrace) return -1
    this.values.push(this.#decimal.value)
    return at + 1
  }

  #isSame(at: number, lead: Lead): boolean {
    const bytes = this.#bytes
    const words = this.#words
    const { length } = lead
    if (at + length > bytes.length) return false
    let index = 0
    for (; index + 4 <= length; index += 4) {
      if (words.getInt32(at + index, true) !== words.getInt32(lead.at + index, true)) return false
    }
    for (; index < length; index += 1) if (bytes[at + index] !== bytes[lead.at + index]) return false
    return true
  }

  #walkedEnd(start: number): number {
    const bytes = this.#bytes
    if (bytes[start] !== openBrace) {
      this.areNumbers = false
      return valueEnd(bytes, start)
    }
    const leads: Lead[] = []
    let isNumber = false
    let leadAt = start
    let at = nonSpace(bytes, start + 1)
    let isOpen = bytes[at] !== closeBrace
    while (isOpen) {
      const keyAt = at
      const isLogprob = isKey(bytes, keyAt, logprobKey)
      at = nonSpace(bytes, keyEnd(bytes, keyAt))
      if (!isLogprob) requirePlainKey(bytes, keyAt, at)
      leads.push({ at: leadAt, length: at - leadAt, isLogprob })
      const numberEnd = isLogprob ? this.#decimal.read(bytes, at) : -1
      // If the key comes twice, the last one counts.
      if (isLogprob) isNumber = numberEnd !== -1
      leadAt = numberEnd === -1 ? valueEnd(bytes, at) : numberEnd
      at = nonSpace(bytes, leadAt)
      isOpen = bytes[at] === comma
      if (isOpen) at = nonSpace(bytes, at + 1)
      else if (bytes[at] !== closeBrace) throw notWalkable
    }
    if (isNumber) {
      this.values.push(this.#decimal.value)
      this.#leads = leads
    } else {
      this.areNumbers = false
    }
    return at + 1
  }
}
