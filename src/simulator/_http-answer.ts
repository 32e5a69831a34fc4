import type { OutgoingHttpHeaders } from 'node:http'

/** The answer to one request over HTTP, as the writers of replies see it. */
export interface HttpAnswer {
  begin(status: number, headers: OutgoingHttpHeaders): void
  write(text: string): void
  /** Writes the last text and ends the answer. */
  end(text: string): void
  /** Breaks the connection once the text has left. */
  cut(text: string): void
}
