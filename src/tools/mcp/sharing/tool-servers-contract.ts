import type { MillraceError } from '../../../errors/index.ts'
import type { ServerAnswer, ServerCall } from '../session/server-call.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'

/** Tool servers as a rollout sees them. */
export interface ServerCalls {
  /**
   * The server's answer, or how the tool failed. Rejects with the signal's reason, and with `tool_infra` where a required server
   * is not available any more: that ends the attempt.
   */
  call(server: string, call: ServerCall): Promise<ServerAnswer>
}

/** One tool server, as the rollouts of one worker, or of a run, find it. */
export interface ToolServerStatus {
  readonly server: string
  /** `away`: it was open, cannot be opened again, and rollouts that need it wait. */
  readonly state: 'unopened' | 'open' | 'away'
  /** How many rollouts wait for it while it is away. */
  readonly waiting: number
  readonly awayMs: number
  readonly awayBecause?: string
}

/**
 * How many rollouts wait for servers that are away, at least: one that waits for two servers is counted by both, and which rollouts
 * they are is not known here.
 */
export function rolloutsWaiting(servers: readonly Pick<ToolServerStatus, 'waiting'>[]): number {
  return servers.reduce((most, { waiting }) => Math.max(most, waiting), 0)
}

/** One rollout's hold on the tool servers of its environment. Disposing of it gives back the rollout's own sessions. */
export interface ServerLease extends ServerCalls, AsyncDisposable {
  /** In the order of the configuration. The same array for as long as no server's list changes. */
  readonly catalogues: readonly ToolCatalogue[]
  /** Servers that failed to open and that the rollout can do without. */
  readonly failures: readonly { readonly server: string; readonly error: MillraceError }[]
}
