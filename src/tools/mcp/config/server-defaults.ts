import type { PoolOptions, ServerOptions } from './server-config.ts'

type Defaults = Required<Pick<ServerOptions, 'startTimeoutMs' | 'callTimeoutMs' | 'reconnect' | 'awayTimeoutMs'>> & {
  readonly pool: Required<PoolOptions>
}

/** The values for a server whose configuration does not give them. */
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

/**
 * How long a call may wait for its server to be opened again: until an opening has found that the server is away, as long as it may
 * be away, and for the end of a probe that began just before.
 */
export function longestWaitOf(config: ServerOptions): number {
  const awayTimeoutMs = awayTimeoutOf(config)
  if (awayTimeoutMs === 0) return 0
  return awayTimeoutMs + 2 * (config.startTimeoutMs ?? serverDefaults.startTimeoutMs)
}
