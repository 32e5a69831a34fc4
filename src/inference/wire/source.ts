/** Where a reply came from, for messages that a person can act on. Holds no secret. */
export interface Source {
  readonly backend: string
  /** What was called, without credentials. */
  readonly url: string
  readonly model: string
  /** The name of the variable that holds the key. */
  readonly apiKeyEnv: string
  /** Whether there was no key to send: that variable is not set, and no header stands instead. */
  readonly lacksKey?: boolean
}
