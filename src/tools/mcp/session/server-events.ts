import { EventChannel } from '../../../kit/index.ts'

/** Events of a server over a run: kept in the journal, counted in the metrics. */
export type ServerEvent = { readonly server: string } & (
  | (StartEvent & { readonly name: 'mcp.open'; readonly cause?: string })
  | (StartEvent & { readonly name: 'mcp.reconnect'; readonly generation: number; readonly cause: string })
  | {
      readonly name: 'mcp.tools_changed'
      readonly added: string[]
      readonly removed: string[]
      readonly changed: string[]
    }
  /** The server's list has changed, and names in its `allow` and `deny` are not in it any more. */
  | { readonly name: 'mcp.names_unlisted'; readonly names: readonly string[] }
  | { readonly name: 'mcp.recycled'; readonly why: 'idle' | 'lifetime' | 'uses' }
  | { readonly name: 'mcp.circuit_open'; readonly cause: string }
  /** The server was open and cannot be opened again: rollouts wait for it. */
  | { readonly name: 'mcp.away'; readonly cause: string }
  /** The server is open again, after `ms`. */
  | { readonly name: 'mcp.back'; readonly ms: number }
)

interface StartEvent {
  readonly ok: boolean
  readonly ms: number
}

export const toolServerEvents = new EventChannel<ServerEvent>('millrace:tool-server')
