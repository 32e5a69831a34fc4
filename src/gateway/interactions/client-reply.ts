/** Where the reply to one request goes. The HTTP door implements it; callers in the same process bring their own. */
export interface ClientReply {
  readonly isGone: boolean
  /**
   * Calls `listener` once if the client goes away from now on; undefined removes it. There is one listener at a time, and no
   * AbortSignal: with one for each request, a quarter of what a gateway allocates outlived its request.
   */
  onGone(listener: (() => void) | undefined): void
  /** Sends the whole reply at once. */
  whole(status: number, headers: Readonly<Record<string, string>>, body: string): void
  /** Sends the head of a stream of server-sent events, with status 200, now. A second call does nothing. */
  beginStream(headers: Readonly<Record<string, string>>): void
  /** False if the client can take no more for now; `resume` is then called once it can. */
  write(text: string, resume: () => void): boolean
  endStream(): void
  /**
   * Only of a client that takes this reply together with others: called when the reply is there. Resolves when the others are
   * there, too, or when the client is gone. A second call returns the same promise.
   */
  ready?(): Promise<void>
}
