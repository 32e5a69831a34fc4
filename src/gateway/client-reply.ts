/** Where the reply to one request goes. A door implements it over HTTP; whoever calls in process brings their own. */
export interface ClientReply {
  /** Aborts when the client goes away. */
  readonly signal: AbortSignal
  /** Everything at once. */
  whole(status: number, headers: Readonly<Record<string, string>>, body: string): void
  /** The head of a stream of server-sent events: status 200 leaves now. */
  beginStream(headers: Readonly<Record<string, string>>): void
  /** False if the client can take no more for now; `resume` is then called once it can. */
  write(text: string, resume: () => void): boolean
  endStream(): void
}
