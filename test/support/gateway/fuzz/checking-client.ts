import type { ClientReply } from '../../../../src/endpoint/index.ts'
import type { ApiName } from '../../../../src/schema/index.ts'
import type { Chance } from './fuzz.ts'
import { checkError, checkStream, readEvents, readObject } from '../stream-events.ts'
import type { ApiClient, Received } from '../api-clients.ts'

/** A client in the same process, which may be slow or leave, and holds its gateway to the rules of a reply. */
export class FuzzedClient implements ClientReply {
  isGone = false
  #onGone: (() => void) | undefined
  readonly #chance: Chance
  /** After so many writes it is gone. */
  readonly #leavesAfter: number
  readonly #isSlow: boolean
  #writes = 0
  #state: 'waiting' | 'streaming' | 'ended' = 'waiting'
  #status = 0
  #text = ''

  constructor(chance: Chance) {
    this.#chance = chance
    this.#leavesAfter = chance.is(0.03) ? chance.below(6) : Number.POSITIVE_INFINITY
    this.#isSlow = chance.is(0.1)
  }

  onGone(listener: (() => void) | undefined): void {
    this.#onGone = listener
  }

  whole(status: number, _headers: Readonly<Record<string, string>>, body: string): void {
    this.#expectState('waiting')
    this.#state = 'ended'
    this.#status = status
    this.#text = body
  }

  beginStream(): void {
    this.#expectState('waiting')
    this.#state = 'streaming'
    this.#status = 200
  }

  write(text: string, resume: () => void): boolean {
    this.#expectState('streaming')
    this.#text += text
    this.#writes += 1
    if (this.#writes > this.#leavesAfter) this.#leave()
    if (!this.#isSlow || this.#chance.is(0.5)) return true
    setImmediate(resume)
    return false
  }

  endStream(): void {
    this.#expectState('streaming')
    this.#state = 'ended'
  }

  /** How it ended for the client: `left` if it did not wait for that. Throws if the API does not allow what it got. */
  outcome(api: ApiName, isPassed: boolean): 'complete' | 'error' | 'left' {
    if (this.isGone) return 'left'
    this.#expectState('ended')
    if (this.#writes > 0 || this.#text === '') {
      const end = checkStream(api, this.#text, isPassed)
      if (end === 'cut') throw new Error('the stream has an end, but its reply has none')
      return end
    }
    if (this.#status === 200) {
      readObject(this.#text)
      return 'complete'
    }
    checkError(api, this.#status, this.#text)
    return 'error'
  }

  /** What it heard, of a reply that is complete. */
  received(api: ApiClient): Received {
    return this.#writes > 0 ? api.receivedStream(readEvents(this.#text)) : api.received(readObject(this.#text))
  }

  #leave(): void {
    if (this.isGone) return
    this.isGone = true
    this.#onGone?.()
  }

  #expectState(state: 'waiting' | 'streaming' | 'ended'): void {
    if (this.#state !== state) throw new Error(`the reply is ${this.#state} where it should be ${state}`)
  }
}
