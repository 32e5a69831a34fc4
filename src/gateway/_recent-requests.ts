import { hash } from 'node:crypto'
import type { ApiName, JsonObject } from '../schema/index.ts'

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
  // A Map iterates in insertion order, so the first is the oldest.
  readonly #requests = new Map<string, Recent<Running>>()

  find(key: string): Recent<Running> | undefined {
    return this.#requests.get(key)
  }

  begin(key: string, running: Running): void {
    this.#requests.delete(key)
    this.#requests.set(key, { kind: 'running', running })
    if (this.#requests.size <= maxRemembered) return
    const [oldest] = this.#requests.keys()
    if (oldest !== undefined) this.#requests.delete(oldest)
  }

  /** `seq` of the reply, or nothing if there is none. Another one with the same body may have begun since. */
  end(key: string, running: Running, seq?: number): void {
    const recent = this.#requests.get(key)
    if (recent?.kind !== 'running' || recent.running !== running) return
    if (seq === undefined) this.#requests.delete(key)
    else this.#requests.set(key, { kind: 'ended', seq })
  }
}

/**
 * What tells a request from all others of its session: where its conversation ends, how long its body is, and what else
 * it says. Not a digest of the body, because the conversation, which is most of it, has been compared already.
 */
export function requestKey(api: ApiName, leaf: number, body: JsonObject, bytes: number): string {
  const { messages: _said, input: _saidInResponses, ...rest } = body
  return `${api} ${leaf} ${bytes} ${hash('sha256', JSON.stringify(rest), 'base64url')}`
}
