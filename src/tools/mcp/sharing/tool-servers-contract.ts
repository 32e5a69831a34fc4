import type { MillraceError } from '../../../errors/index.ts'
import type { ServerAnswer, ServerCall } from '../session/server-call.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'

/** Tool servers as a rollout sees them. */
export interface ServerCalls {
  /**
   * What the server answered, or how the tool failed. Rejects with the signal's reason, and with `tool_infra` where a required
   * server cannot be had any more: that ends the attempt.
   */
  call(server: string, call: ServerCall): Promise<ServerAnswer>
}

/** One rollout's hold on the tool servers of its environment. To dispose of it gives back what was the rollout's alone. */
export interface ServerLease extends ServerCalls, AsyncDisposable {
  /** In the order of the configuration. The same array for as long as no server's list changed. */
  readonly catalogues: readonly ToolCatalogue[]
  /** Servers that the rollout can do without, and has to. */
  readonly failures: readonly { readonly server: string; readonly error: MillraceError }[]
}
