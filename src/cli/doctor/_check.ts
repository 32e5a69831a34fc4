import type { Json } from '../../schema/index.ts'

/** The result of one check: what was found, and what to do about it if it will cause trouble. */
export interface Check {
  /** The check's name in JSON. */
  readonly key: string
  readonly name: string
  /** The result for people. */
  readonly shown: string
  /** The result for programs. */
  readonly facts: Readonly<Record<string, Json>>
  /** Given only if something limits what this machine could do. */
  readonly advice?: string
}
