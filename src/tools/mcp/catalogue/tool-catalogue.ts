import type { UnlistedName } from './unlisted-names.ts'

/** A tool as its server lists it. */
export interface ServerTool {
  readonly server: string
  /** On its server. */
  readonly name: string
  readonly description?: string
  /** JSON Schema of its arguments. */
  readonly inputSchema: Readonly<Record<string, unknown>>
  readonly outputSchema?: Readonly<Record<string, unknown>>
  readonly isReadOnly: boolean
  readonly isIdempotent: boolean
}

/** What a server offers, all pages of it. The same object for as long as the list is the same. */
export interface ToolCatalogue {
  readonly server: string
  readonly tools: readonly ServerTool[]
  /** Changes with any tool's name, description or schema. */
  readonly digest: string
  /** Names in the server's `allow` and `deny` that it does not list; not there if it lists them all. */
  readonly unlisted?: readonly UnlistedName[]
}
