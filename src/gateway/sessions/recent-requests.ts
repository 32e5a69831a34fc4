import { hash } from 'node:crypto'
import { maxChoices } from '../../dialects/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import type { InteractionCall } from '../interactions/incoming-request.ts'

/**
 * How many requests are remembered: all choices of one request at least. Beyond it the oldest is forgotten: a retry of it is
 * then a request like any other.
 */
const maxRemembered = maxChoices

/** What became of a request: the interaction that still answers it, or the node of its reply. */
export type Recent<Running> =
  | { readonly kind: 'running'; readonly running: Running }
  | { readonly kind: 'ended'; readonly seq: number }

interface RecentRequest<Running> {
  readonly key: string
  /** Undefined if there was no reply. */
  recent: Recent<Running> | undefined
  /** Whether the client was there to take the reply, as far as anybody can know. */
  wasHeard: boolean
}

type KeyedCall = Pick<InteractionCall, 'api' | 'body' | 'choice'>

interface EndedRequest {
  readonly seq: number
  readonly wasHeard: boolean
}

/**
 * The last requests of one session by their bodies, for clients that send a request again because they did not hear the
 * answer. Several requests may have the same body, as samples of one prompt do, and a retry is of only one of them.
 */
export class RecentRequests<Running> {
  /** The newest last. Not a Map: `ArraySet` says what a Map costs when its content changes with every request. */
  readonly #requests: RecentRequest<Running>[] = []

  /**
   * What the client of a retry waits for. Undefined if the model has to be asked: the reply was lost, or several requests
   * with that body are under way and nobody can say which of them was sent again. A retry must not get another request's
   * sample.
   */
  retried(key: string): Recent<Running> | undefined {
    const same = this.#requests.filter((request) => request.key === key)
    // Unheard replies come first: retries with the same body look alike, so any of them can take one, also one whose own
    // request is lost or still running.
    const unheard = same.find(({ recent, wasHeard }) => recent?.kind === 'ended' && !wasHeard)
    if (unheard) {
      unheard.wasHeard = true
      return unheard.recent
    }
    const lost = same.find(({ recent }) => recent === undefined)
    if (lost) {
      // Removed, because the next retry is of another request.
      this.#requests.splice(this.#requests.indexOf(lost), 1)
      return undefined
    }
    const running = same.filter(({ recent }) => recent?.kind === 'running')
    if (running.length > 0) return running.length === 1 ? running[0]?.recent : undefined
    return same.at(-1)?.recent
  }

  begin(key: string, running: Running): void {
    this.#add({ key, recent: { kind: 'running', running }, wasHeard: false })
  }

  /** Adds a request that ended in an earlier process, or before the session was forgotten for a while. */
  restore(key: string, { seq, wasHeard }: EndedRequest): void {
    this.#add({ key, recent: { kind: 'ended', seq }, wasHeard })
  }

  /** The client that got the reply again had gone, too. */
  unhear(seq: number): void {
    const request = this.#requests.find(({ recent }) => recent?.kind === 'ended' && recent.seq === seq)
    if (request) request.wasHeard = false
  }

  /** Ends a request with its reply and whether its client was still there, or without a reply. */
  end(running: Running, reply?: EndedRequest): void {
    const request = this.#requests.findLast(({ recent }) => recent?.kind === 'running' && recent.running === running)
    if (!request) return
    request.recent = reply && { kind: 'ended', seq: reply.seq }
    request.wasHeard = reply?.wasHeard ?? false
  }

  #add(request: RecentRequest<Running>): void {
    if (this.#requests.length === maxRemembered) this.#requests.shift()
    this.#requests.push(request)
  }
}

/**
 * What tells a request from all others of its session: where its conversation ends, how long its body is, a digest of its
 * other fields, and which of several choices it asks for. The body is not digested whole, because its largest part, the
 * conversation, has been compared already.
 */
export function requestKey(call: KeyedCall, leaf: number, members: JsonObject): string {
  const { api, body, choice } = call
  const { messages: _said, input: _saidInResponses, ...rest } = members
  const key = `${api} ${leaf} ${body.length} ${digestOf(JSON.stringify(rest))}`
  return choice ? `${key} ${choice.index}/${choice.count}` : key
}

/** The last text that was digested. Most requests have the same other fields as the one before, whichever session they are of. */
let last = { text: '', digest: '' }

/** Longer texts are not kept: in SGLang's own API the prompt is one of the fields. */
const maxKeptChars = 64 * 1024

function digestOf(text: string): string {
  if (text === last.text) return last.digest
  const digest = hash('sha256', text, 'base64url')
  if (text.length <= maxKeptChars) last = { text, digest }
  return digest
}
