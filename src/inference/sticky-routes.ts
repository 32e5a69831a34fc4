/** More sessions than this are not remembered: the one not heard of for longest is forgotten and may move. */
const maxSessions = 65_536

/** Which backend each session was last sent to, because that one holds its prefix in its cache. */
export class StickyRoutes<Route> {
  // A Map iterates in insertion order and entries are put back at the end when used, so the first is the least recent.
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
