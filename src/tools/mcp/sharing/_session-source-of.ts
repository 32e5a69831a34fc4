import type { Semaphore } from '../../../kit/index.ts'
import type { CatalogueCache } from '../catalogue/catalogue-cache.ts'
import { rememberSecrets, secretsOf } from '../config/config-secrets.ts'
import type { ServerEventListener } from './_held-events.ts'
import { onRestartOf } from '../config/on-restart-of.ts'
import { ProcessPool } from './_process-pool.ts'
import { SessionPerRollout } from './_session-per-rollout.ts'
import type { SessionSource } from './_session-source.ts'
import { SharedServer } from './_shared-server.ts'
import { McpSession } from '../session/mcp-session.ts'
import type { ServerGate } from '../session/server-gate.ts'
import type { ServerConfig } from '../config/server-config.ts'
import { sharingOf } from '../config/sharing-of.ts'

export interface SourceOptions {
  readonly name: string
  readonly config: ServerConfig
  readonly starts: Semaphore
  readonly catalogues: CatalogueCache
  readonly onEvent: ServerEventListener
  readonly gate: ServerGate
}

/** A source for the way of sharing that the server's configuration asks for. Starts nothing. */
export function sessionSourceOf(options: SourceOptions): SessionSource {
  const { name, config, onEvent, gate } = options
  const { idleMs, maxLifetimeMs } = config
  const sharing = sharingOf(name, config)
  if (sharing === 'shared') return new SharedServer(new McpSession(options), gate)
  // A rollout's own session lasts as long as the rollout: replacing it meanwhile would lose what the server was told.
  const { idleMs: _idle, maxLifetimeMs: _lifetime, ...rest } = config
  const kept = rememberSecrets({ ...rest, onRestart: onRestartOf(name, config) }, secretsOf(config))
  const makeSession = (tell: ServerEventListener): McpSession =>
    new McpSession({ ...options, config: kept, onEvent: tell })
  if (sharing === 'session') return new SessionPerRollout({ makeSession, gate, onEvent })
  return new ProcessPool({
    ...config.pool,
    makeSession,
    gate,
    idleMs,
    maxLifetimeMs,
    onEvent,
    onRecycle: (why) => onEvent({ name: 'mcp.recycled', server: name, why }),
  })
}
