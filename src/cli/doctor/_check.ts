import type { Json } from '../../schema/index.ts'

/** One thing that was looked at: what it is like, and what to do about it if it will be in the way. */
export interface Check {
  /** Its name in JSON. */
  readonly key: string
  readonly name: string
  /** For people. */
  readonly shown: string
  /** For programs. */
  readonly facts: Readonly<Record<string, Json>>
  /** Only where something limits what this machine could do. */
  readonly advice?: string
}
