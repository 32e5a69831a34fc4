import type { ResumeRule } from '../../tool.ts'

/**
 * How rollouts share a server.
 * `shared`: one session for all of them. For servers that keep nothing between calls.
 * `session`: each rollout has a session of its own on one server. For HTTP servers that keep state per session.
 * `pooled`: each rollout has a process of its own, taken from a pool of warm ones. For stdio servers that keep state.
 */
export type Sharing = 'shared' | 'session' | 'pooled'

/** One entry of `mcpServers`: what every MCP client reads, and our own options beside it. */
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
  /** A PEM file with the authority to trust, instead of those whom Node trusts. */
  readonly caFile?: string
}

export interface ServerOptions {
  /** Left out, as if it were not there; false if not given. */
  readonly disabled?: boolean
  /** `pooled` for a command and `session` for a URL, if not given: no rollout sees what another did. */
  readonly sharing?: Sharing
  /** Whether a rollout can do without it. One that cannot ends as `tool_infra_error`; true if not given. */
  readonly required?: boolean
  /** Only these tools; all if not given. */
  readonly allow?: readonly string[]
  /** Never these: they are neither shown nor called. As in `allow`, by their names on the server, each of which it must have. */
  readonly deny?: readonly string[]
  /**
   * Whether calls of one turn may run side by side on it. If not given they may where it is shared, and among tools that
   * say they only read.
   */
  readonly parallel?: boolean
  /** Put before the names of its tools, where two servers have one of the same name: `web_` makes `web_search`. */
  readonly prefix?: string
  /**
   * When a call that a crash cut off is made once more. `safe`: if it was never written, or the tool declares itself
   * read-only or idempotent. `safe` if not given.
   */
  readonly retry?: 'safe' | 'always' | 'never'
  /** What becomes of earlier calls when a rollout is resumed. `reuse` for what is shared or read-only, else `restart`. */
  readonly resume?: ResumeRule
  /**
   * What happens to a rollout whose server lost its state in a restart: it ends as `tool_infra_error`, or the model is told.
   * `fail` for a required server that is not shared, else `tell`.
   */
  readonly onRestart?: 'fail' | 'tell'
  /** To start, initialise and list; 30 s if not given. */
  readonly startTimeoutMs?: number
  /** For one call, never more than the rollout has left; 120 s if not given. */
  readonly callTimeoutMs?: number
  /** A session that nobody used for this long is closed and opened again when it is asked for; never if not given. */
  readonly idleMs?: number
  /** A session older than this is replaced; calls that run on it may end. Never if not given. */
  readonly maxLifetimeMs?: number
  readonly pool?: PoolOptions
  /**
   * How often in which time a session that was lost may be opened again, and a server that did not start be tried again,
   * before callers fail at once. The two are counted apart; 3 in 60 s if not given.
   */
  readonly reconnect?: { readonly max: number; readonly windowMs: number }
}

export interface PoolOptions {
  /** Processes that wait for a rollout, started ahead; 1 if not given. */
  readonly warm?: number
  /** At most this many processes at once; rollouts beyond them wait. 32 if not given. */
  readonly max?: number
  /** Rollouts that one process serves before it is replaced; 1 if not given, since it may keep what it was told. */
  readonly maxUses?: number
}
