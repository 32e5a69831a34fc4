/** At most so many sessions are remembered. Beyond it the least recently used one is forgotten, and may move. */
const maxSessions = 65_536

/** Which backend each session was last sent to, because that backend has the session's prefix in its cache. */
export class StickyRoutes<Route> {
  // A Map iterates in insertion order, and `set` puts an entry at the end, so the first one is the least recently used.
  readonly #routes = new Map<string, Route>()

  get(sessionId: string): Route | undefined {
    return this.#routes.get(sessionId)
  }

  set(sessionId: string, route: Route): void {
    this.#routes.delete(sessionId)
    this.#routes.set(sessionId, route)
    if (this.#routes.size <= maxSessions) return
    const [oldest] = this.#routes.keys()
    if (oldest !== undefined) this.#routes.delete(oldest)
  }

  forget(sessionId: string): void {
    this.#routes.delete(sessionId)
  }
}
