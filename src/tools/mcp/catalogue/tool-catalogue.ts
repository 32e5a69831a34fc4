import type { UnlistedName } from './unlisted-names.ts'

/** A tool as its server lists it. */
export interface ServerTool {
  readonly server: string
  /** The tool's name on its server. */
  readonly name: string
  readonly description?: string
  /** JSON Schema of the arguments. */
  readonly inputSchema: Readonly<Record<string, unknown>>
  readonly outputSchema?: Readonly<Record<string, unknown>>
  readonly isReadOnly: boolean
  readonly isIdempotent: boolean
}

/** A server's offered tools, from all pages. The same object for as long as the list is the same. */
export interface ToolCatalogue {
  readonly server: string
  readonly tools: readonly ServerTool[]
  /** Changes with any tool's name, description or schema. */
  readonly digest: string
  /** Names in the server's `allow` and `deny` that the server does not list; left out if it lists all. */
  readonly unlisted?: readonly UnlistedName[]
}
