import type { PoolOptions, ServerOptions } from './server-config.ts'

type Defaults = Required<Pick<ServerOptions, 'startTimeoutMs' | 'callTimeoutMs' | 'reconnect'>> & {
  readonly pool: Required<PoolOptions>
}

/** The values for a server whose configuration does not give them. */
export const serverDefaults: Defaults = {
  startTimeoutMs: 30_000,
  callTimeoutMs: 120_000,
  reconnect: { max: 3, windowMs: 60_000 },
  pool: { warm: 1, max: 32, maxUses: 1 },
}
