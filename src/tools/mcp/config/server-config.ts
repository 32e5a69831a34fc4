import { MillraceError } from '../../../errors/index.ts'
import { headerSecrets, Redaction, urlSecrets } from '../../../kit/index.ts'
import { isJsonObject } from '../../../schema/index.ts'
import type { ResumeRule } from '../../tool.ts'

/**
 * How rollouts share a server.
 * `shared`: one session for all of them. For servers that keep nothing between calls.
 * `session`: each rollout has a session of its own on one server. For HTTP servers that keep state per session.
 * `pooled`: each rollout has a process of its own, taken from a pool of warm ones. For stdio servers that keep state.
 */
type Sharing = 'shared' | 'session' | 'pooled'

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
  /** Whether calls of one turn may run in parallel. By default on a shared server, and among tools that only read. */
  readonly parallel?: boolean
  /** Put before the names of the server's tools, if another server has one of the same name: `web_` makes `web_search`. */
  readonly prefix?: string
  /**
   * When a call that a crash cut off is made once more. `safe`, the default: if the call was never written, or the tool declares
   * itself read-only or idempotent.
   */
  readonly retry?: 'safe' | 'always' | 'never'
  /** What becomes of earlier calls on resume. By default `reuse` for shared servers and read-only tools, else `restart`. */
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

type Defaults = Required<Pick<ServerOptions, 'startTimeoutMs' | 'callTimeoutMs' | 'reconnect' | 'awayTimeoutMs'>> & {
  readonly pool: Required<PoolOptions>
}

export const serverDefaults: Defaults = {
  startTimeoutMs: 30_000,
  callTimeoutMs: 120_000,
  reconnect: { max: 3, windowMs: 60_000 },
  awayTimeoutMs: 600_000,
  pool: { warm: 1, max: 32, maxUses: 1 },
}

/** How long rollouts wait for a server that is away: a rollout that can do without the server does not wait. */
export function awayTimeoutOf({ awayTimeoutMs, required = true }: ServerOptions): number {
  return awayTimeoutMs ?? (required ? serverDefaults.awayTimeoutMs : 0)
}

/** How long a call may wait for its server: until it is found to be away, while it may be away, and for a last probe. */
export function longestWaitOf(config: ServerOptions): number {
  const awayTimeoutMs = awayTimeoutOf(config)
  if (awayTimeoutMs === 0) return 0
  return awayTimeoutMs + 2 * (config.startTimeoutMs ?? serverDefaults.startTimeoutMs)
}

/** How a server is shared, with the default where its configuration does not say. Throws if the server cannot be shared so. */
export function sharingOf(server: string, config: ServerConfig): Sharing {
  const isCommand = 'command' in config
  const sharing = config.sharing ?? (isCommand ? 'pooled' : 'session')
  const own = isCommand ? 'pooled' : 'session'
  if (sharing !== 'shared' && sharing !== own) {
    const why = isCommand
      ? 'a command, which has one session per process'
      : 'a URL, of which there are no processes to pool'
    throw new MillraceError(
      'config_invalid',
      `the tool server "${server}" is ${why}: use "sharing": "${own}" to give each rollout a ` +
        `${isCommand ? 'process' : 'session'} of its own, or "shared" if it keeps nothing between calls`,
    )
  }
  return sharing
}

/** What a restart that lost state means for a rollout, with the default where the configuration does not say. */
export function onRestartOf(server: string, config: ServerConfig): 'fail' | 'tell' {
  const isRequired = config.required ?? true
  return config.onRestart ?? (isRequired && sharingOf(server, config) !== 'shared' ? 'fail' : 'tell')
}

/** The servers without those that say `disabled`. Those are not checked further: variables they need may be missing. */
export function enabledServers<Entry>(servers: Readonly<Record<string, Entry>>): Record<string, Entry> {
  return Object.fromEntries(
    Object.entries(servers).filter(([, entry]) => !isJsonObject(entry) || entry['disabled'] !== true),
  )
}

/**
 * The values that were filled in from variables when a configuration was read. Kept beside the configuration and not in it, since
 * code that shows or stores a configuration must not show them. An entry is freed with its configuration.
 */
const filledIn = new WeakMap<object, readonly string[]>()

export function rememberSecrets<Config extends ServerConfig>(config: Config, secrets: readonly string[]): Config {
  if (secrets.length > 0) filledIn.set(config, secrets)
  return config
}

export function secretsOf(config: object): readonly string[] {
  return filledIn.get(config) ?? []
}

/**
 * Keeps a server's secrets out of errors and events: values that came from variables, wherever they were put; all headers and
 * variables of the server, whatever their names; and credentials and parameters in its URL.
 */
export function redactionOf(config: ServerConfig): Redaction {
  const given =
    'url' in config
      ? [...Object.values(config.headers ?? {}).flatMap(headerSecrets), ...urlSecrets(new URL(config.url))]
      : Object.values(config.env ?? {})
  return new Redaction([...secretsOf(config), ...given])
}
