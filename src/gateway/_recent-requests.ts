import { hash } from 'node:crypto'
import type { ClientApi, JsonObject } from '../schema/index.ts'

/** The oldest is forgotten beyond this: a retry of it is then a request like any other. */
const maxRemembered = 16

/** What came of a request so far: the one who still answers it, or the node of the reply. */
export type Recent<Running> =
  | { readonly kind: 'running'; readonly running: Running }
  | { readonly kind: 'ended'; readonly seq: number }

/**
 * The last requests of one session by their bodies, for clients that send one again because they did not hear the answer.
 * What failed is not remembered: trying that again is what a retry is for.
 */
export class RecentRequests<Running> {
  /** The newest last. Not a Map: see `Roster` for what one costs when what it holds changes with every request. */
  readonly #requests: { readonly key: string; recent: Recent<Running> }[] = []

  find(key: string): Recent<Running> | undefined {
    return this.#entry(key)?.recent
  }

  begin(key: string, running: Running): void {
    this.#add(key, { kind: 'running', running })
  }

  /** One that ended in an earlier process, or before the session was forgotten for a while. */
  restore(key: string, seq: number): void {
    this.#add(key, { kind: 'ended', seq })
  }

  /** `seq` of the reply, or nothing if there is none. Another one with the same body may have begun since. */
  end(key: string, running: Running, seq?: number): void {
    const entry = this.#entry(key)
    if (entry?.recent.kind !== 'running' || entry.recent.running !== running) return
    if (seq === undefined) this.#remove(key)
    else entry.recent = { kind: 'ended', seq }
  }

  #add(key: string, recent: Recent<Running>): void {
    this.#remove(key)
    if (this.#requests.length === maxRemembered) this.#requests.shift()
    this.#requests.push({ key, recent })
  }

  #entry(key: string): { recent: Recent<Running> } | undefined {
    return this.#requests.findLast((request) => request.key === key)
  }

  #remove(key: string): void {
    const at = this.#requests.findIndex((request) => request.key === key)
    if (at !== -1) this.#requests.splice(at, 1)
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
