/** Where the reply to one request goes. A door implements it over HTTP; whoever calls in process brings their own. */
export interface ClientReply {
  readonly isGone: boolean
  /**
   * Calls `listener` once if the client goes away from now on; undefined takes it back. One at a time, and not a signal:
   * with one for each request, a quarter of what a gateway allocates outlived its request.
   */
  onGone(listener: (() => void) | undefined): void
  /** Everything at once. */
  whole(status: number, headers: Readonly<Record<string, string>>, body: string): void
  /** The head of a stream of server-sent events: status 200 leaves now. The second time it changes nothing. */
  beginStream(headers: Readonly<Record<string, string>>): void
  /** False if the client can take no more for now; `resume` is then called once it can. */
  write(text: string, resume: () => void): boolean
  endStream(): void
}
