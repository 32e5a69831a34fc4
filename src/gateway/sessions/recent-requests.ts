import { hash } from 'node:crypto'
import type { ClientApi, JsonObject } from '../../schema/index.ts'

/** The oldest is forgotten beyond this: a retry of it is then a request like any other. */
const maxRemembered = 16

/** What comes of a request: the one who still answers it, or the node of the reply. */
export type Recent<Running> =
  | { readonly kind: 'running'; readonly running: Running }
  | { readonly kind: 'ended'; readonly seq: number }

interface RecentRequest<Running> {
  readonly key: string
  /** Undefined if nothing came of it. */
  recent: Recent<Running> | undefined
  /** Whether its client was there to take the reply, as far as anybody can know. */
  wasHeard: boolean
}

interface EndedRequest {
  readonly seq: number
  readonly wasHeard: boolean
}

/**
 * The last requests of one session by their bodies, for clients that send one again because they did not hear the answer.
 * Several may have the same body, as samples of one prompt do, and only one of them is the one that was sent again.
 */
export class RecentRequests<Running> {
  /** The newest last. Not a Map: see `Roster` for what one costs when what it holds changes with every request. */
  readonly #requests: RecentRequest<Running>[] = []

  /**
   * What the client of a retry waits for. Undefined if it has to be asked for: what it waited for is lost, or nobody can say
   * which of several that are under way it is, and then it must not be given the sample of somebody else.
   */
  retried(key: string): Recent<Running> | undefined {
    const same = this.#requests.filter((request) => request.key === key)
    // First, because whoever else has sent the same can take it: those that wait for a lost or a running one ask alike.
    const unheard = same.find(({ recent, wasHeard }) => recent?.kind === 'ended' && !wasHeard)
    if (unheard) {
      unheard.wasHeard = true
      return unheard.recent
    }
    const lost = same.find(({ recent }) => recent === undefined)
    if (lost) {
      // The next retry is of another one.
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

  /** One that ended in an earlier process, or before the session was forgotten for a while. */
  restore(key: string, { seq, wasHeard }: EndedRequest): void {
    this.#add({ key, recent: { kind: 'ended', seq }, wasHeard })
  }

  /** Whoever was given it again had gone, too. */
  unhear(seq: number): void {
    const request = this.#requests.find(({ recent }) => recent?.kind === 'ended' && recent.seq === seq)
    if (request) request.wasHeard = false
  }

  /** With the reply, and whether its client was still there; or with nothing. */
  end(running: Running, reply?: EndedRequest): void {
    const request = this.#requests.find(({ recent }) => recent?.kind === 'running' && recent.running === running)
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
 * What tells a request from all others of its session: where its conversation ends, how long its body is, and what else
 * it says. Not a digest of the body, because the conversation, which is most of it, has been compared already.
 */
export function requestKey(api: ClientApi, leaf: number, body: JsonObject, bytes: number): string {
  const { messages: _said, input: _saidInResponses, ...rest } = body
  return `${api} ${leaf} ${bytes} ${hash('sha256', JSON.stringify(rest), 'base64url')}`
}
