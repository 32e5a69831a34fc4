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
  valueEnd,
} from '../kit/index.ts'
import { Decimal } from './_decimal.ts'
import { scannedLogprobs } from './_growing-array.ts'

const logprobKey = keyBytes('logprob')

/** What stands before a value of an entry: the brace or the comma, the key and the colon. */
interface Lead {
  readonly at: number
  readonly length: number
  readonly isLogprob: boolean
}

/**
 * The log-probabilities in a list of objects, one object for each token. A server writes all of them alike, so what stands
 * before the values is compared with an entry that was read before, four bytes at a time, and not walked over: scanning a
 * reply takes a third less time.
 */
export class LogprobEntries {
  readonly #bytes: Uint8Array
  readonly #words: DataView
  readonly #decimal = new Decimal()
  readonly #values = scannedLogprobs()
  /** Those of the last entry that was walked over; none if it is nothing to go by. */
  #leads: Lead[] = []
  #areNumbers = true

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
    this.#words = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  }

  /** Reads the list that begins at `start`, and returns where it ends. */
  read(start: number): number {
    return elementsEnd(this.#bytes, start, this.#entryEnd)
  }

  /** Undefined if an entry has no number. */
  get values(): Float32Array<ArrayBuffer> | undefined {
    return this.#areNumbers ? this.#values.whole() : undefined
  }

  readonly #entryEnd = (start: number): number => {
    const end = this.#alikeEnd(start)
    return end === -1 ? this.#walkedEnd(start) : end
  }

  /** -1 if the entry is written in another way. */
  #alikeEnd(start: number): number {
    const bytes = this.#bytes
    let at = start
    const leads = this.#leads
    if (leads.length === 0) return -1
    for (let index = 0; index < leads.length; index += 1) {
      const lead = leads[index] as Lead
      if (!this.#isSame(at, lead)) return -1
      at += lead.length
      at = lead.isLogprob ? this.#decimal.read(bytes, at) : valueEnd(bytes, at)
      if (at === -1) return -1
    }
    at = nonSpace(bytes, at)
    if (bytes[at] !== closeBrace) return -1
    this.#values.push(this.#decimal.value)
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
    const leads: Lead[] = []
    this.#leads = []
    if (bytes[start] !== openBrace) {
      this.#areNumbers = false
      return valueEnd(bytes, start)
    }
    let logprobs = 0
    let isNumber = false
    let leadAt = start
    let at = nonSpace(bytes, start + 1)
    let isOpen = bytes[at] !== closeBrace
    while (isOpen) {
      const isLogprob = isKey(bytes, at, logprobKey)
      at = nonSpace(bytes, keyEnd(bytes, at))
      leads.push({ at: leadAt, length: at - leadAt, isLogprob })
      const numberEnd = isLogprob ? this.#decimal.read(bytes, at) : -1
      if (isLogprob) {
        logprobs += 1
        isNumber = numberEnd !== -1
      }
      leadAt = numberEnd === -1 ? valueEnd(bytes, at) : numberEnd
      at = nonSpace(bytes, leadAt)
      isOpen = bytes[at] === comma
      if (isOpen) at = nonSpace(bytes, at + 1)
      else if (bytes[at] !== closeBrace) throw notWalkable
    }
    if (isNumber) this.#values.push(this.#decimal.value)
    else this.#areNumbers = false
    // Of two the last counts, even if it is no number.
    if (isNumber && logprobs === 1) this.#leads = leads
    return at + 1
  }
}
