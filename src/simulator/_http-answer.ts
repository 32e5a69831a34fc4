import type { OutgoingHttpHeaders } from 'node:http'

/** The answer to one request over HTTP, as whoever writes the reply sees it. */
export interface HttpAnswer {
  begin(status: number, headers: OutgoingHttpHeaders): void
  write(text: string): void
  /** Everything is said. */
  end(text: string): void
  /** Breaks the connection once the text has left. */
  cut(text: string): void
}
