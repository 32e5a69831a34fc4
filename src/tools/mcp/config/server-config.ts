import type { ResumeRule } from '../../tool.ts'

/**
 * How rollouts share a server.
 * `shared`: one session for all of them. For servers that keep nothing between calls.
 * `session`: each rollout has a session of its own on one server. For HTTP servers that keep state per session.
 * `pooled`: each rollout has a process of its own, taken from a pool of warm ones. For stdio servers that keep state.
 */
export type Sharing = 'shared' | 'session' | 'pooled'

/** One entry of `mcpServers`: the fields that every MCP client reads, and our own options. */
export type ServerConfig = (StdioServerConfig | HttpServerConfig) & ServerOptions

export interface StdioServerConfig {
  readonly type?: 'stdio'
  readonly command: string
  readonly args?: readonly string[]
  /** Added to the few variables that a server needs to start (PATH, HOME and the like); nothing else is passed on. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
}

export interface HttpServerConfig {
  /** `http` is Streamable HTTP; `sse` the older transport. `http` if not given. */
  readonly type?: 'http' | 'streamable-http' | 'sse'
  readonly url: string
  readonly headers?: Readonly<Record<string, string>>
  /** A PEM file with the authority to trust, instead of those that Node trusts. */
  readonly caFile?: string
}

export interface ServerOptions {
  /** Leaves the server out, as if it were not listed; false if not given. */
  readonly disabled?: boolean
  /** `pooled` for a command and `session` for a URL, if not given: no rollout sees what another did. */
  readonly sharing?: Sharing
  /** Whether rollouts need the server. If it cannot be had, they end as `tool_infra_error`; true if not given. */
  readonly required?: boolean
  /** Only these tools; all if not given. */
  readonly allow?: readonly string[]
  /** Never these tools: they are neither shown nor called. As in `allow`, by their names on the server, which must list them. */
  readonly deny?: readonly string[]
  /**
   * Whether calls of one turn may run in parallel on this server. If not given they may where the server is shared, and among
   * tools that say they only read.
   */
  readonly parallel?: boolean
  /** Put before the names of the server's tools, if another server has one of the same name: `web_` makes `web_search`. */
  readonly prefix?: string
  /**
   * When a call that a crash cut off is made once more. `safe`, the default: if the call was never written, or the tool declares
   * itself read-only or idempotent.
   */
  readonly retry?: 'safe' | 'always' | 'never'
  /**
   * What becomes of earlier calls when a rollout is resumed. By default `reuse` for shared servers and read-only tools, else
   * `restart`.
   */
  readonly resume?: ResumeRule
  /**
   * What happens to a rollout whose server lost its state in a restart: it ends as `tool_infra_error` (`fail`), or the model is
   * told (`tell`). By default `fail` for a required server that is not shared, else `tell`.
   */
  readonly onRestart?: 'fail' | 'tell'
  /** The time to start, initialise and list; 30 s if not given. */
  readonly startTimeoutMs?: number
  /** The time for one call, never more than the rollout has left; 120 s if not given. */
  readonly callTimeoutMs?: number
  /** A session that nobody used for this long is closed and opened again when it is asked for; never if not given. */
  readonly idleMs?: number
  /** A session older than this is replaced; calls that run on it may end. Never if not given. */
  readonly maxLifetimeMs?: number
  readonly pool?: PoolOptions
  /**
   * How often within which time a lost session may be opened again, and a server that was never open be tried again, before
   * callers fail at once. The two are counted apart; 3 in 60 s if not given. A shared server that is lost more often than that
   * is away.
   */
  readonly reconnect?: { readonly max: number; readonly windowMs: number }
  /**
   * How long rollouts wait for a server that was open and cannot be opened again, counted from when that was first found. 0: they
   * do not wait. If not given, 10 minutes for a required server, else 0.
   */
  readonly awayTimeoutMs?: number
}

export interface PoolOptions {
  /** Processes that wait for a rollout, started ahead; 1 if not given. */
  readonly warm?: number
  /** At most this many processes at once; rollouts beyond them wait. 32 if not given. */
  readonly max?: number
  /** How many rollouts one process serves before it is replaced; 1 if not given, since a process may keep what it was told. */
  readonly maxUses?: number
}
