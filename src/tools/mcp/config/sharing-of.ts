import { MillraceError } from '../../../errors/index.ts'
import type { ServerConfig, Sharing } from './server-config.ts'

/** How a server is shared, with the default where its configuration does not say. Throws if the server cannot be shared so. */
export function sharingOf(server: string, config: ServerConfig): Sharing {
  const isCommand = 'command' in config
  const sharing = config.sharing ?? (isCommand ? 'pooled' : 'session')
  if (isCommand && sharing === 'session') {
    throw new MillraceError(
      'config_invalid',
      `the tool server "${server}" is a command, which has one session per process: use "sharing": "pooled" to give each ` +
        'rollout a process of its own, or "shared" if it keeps nothing between calls',
    )
  }
  if (!isCommand && sharing === 'pooled') {
    throw new MillraceError(
      'config_invalid',
      `the tool server "${server}" is a URL, of which there are no processes to pool: use "sharing": "session" to give each ` +
        'rollout a session of its own, or "shared" if it keeps nothing between calls',
    )
  }
  return sharing
}
