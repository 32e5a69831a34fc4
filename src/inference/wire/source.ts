import type { Redaction } from '../../kit/index.ts'

/** Where a reply came from, for messages that a person can act on. */
export interface Source {
  readonly backend: string
  /** The url that was called, without secrets. */
  readonly url: string
  readonly model: string
  /** The name of the variable that holds the key. */
  readonly apiKeyEnv: string
  /** Whether there was no key to send: the variable is not set, and no header replaces it. */
  readonly lacksKey?: boolean
  /** Takes the backend's secrets out of its words. All of its words that go into an error pass here. */
  readonly redaction: Redaction
}
