import { EventChannel } from '../../../kit/index.ts'

/** Events of a server over a run: kept in the journal, counted in the metrics. */
export type ServerEvent =
  | {
      readonly name: 'mcp.open'
      readonly server: string
      readonly ok: boolean
      readonly ms: number
      readonly cause?: string
    }
  | {
      readonly name: 'mcp.reconnect'
      readonly server: string
      readonly ok: boolean
      readonly ms: number
      readonly generation: number
      readonly cause: string
    }
  | {
      readonly name: 'mcp.tools_changed'
      readonly server: string
      readonly added: string[]
      readonly removed: string[]
      readonly changed: string[]
    }
  /** The server's list has changed, and names in its `allow` and `deny` are not in it any more. */
  | { readonly name: 'mcp.names_unlisted'; readonly server: string; readonly names: readonly string[] }
  | { readonly name: 'mcp.recycled'; readonly server: string; readonly why: 'idle' | 'lifetime' | 'uses' }
  | { readonly name: 'mcp.circuit_open'; readonly server: string; readonly cause: string }
  /** The server was open and cannot be opened again: rollouts wait for it. */
  | { readonly name: 'mcp.away'; readonly server: string; readonly cause: string }
  /** The server is open again, after `ms`. */
  | { readonly name: 'mcp.back'; readonly server: string; readonly ms: number }

export const toolServerEvents = new EventChannel<ServerEvent>('millrace:tool-server')
