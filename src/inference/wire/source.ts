/** Where a reply came from, for messages that a person can act on. Holds no secret. */
export interface Source {
  readonly backend: string
  /** The url that was called, without credentials. */
  readonly url: string
  readonly model: string
  /** The name of the variable that holds the key. */
  readonly apiKeyEnv: string
  /** Whether there was no key to send: the variable is not set, and no header replaces it. */
  readonly lacksKey?: boolean
}
