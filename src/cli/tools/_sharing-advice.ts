import { sharingOf, type ServerConfig } from '../../tools/index.ts'
import { formatBytes } from '../format/bytes.ts'
import type { ToolCounts } from './_examination.ts'

/** The default of `PoolOptions.max`. */
const defaultPoolSize = 32

/** How rollouts will share a server, and what that costs. */
export function sharingAdvice(
  server: string,
  config: ServerConfig,
  { tools, memoryBytes }: { readonly tools: ToolCounts; readonly memoryBytes?: number },
): string {
  const sharing = sharingOf(server, config)
  const memory = memoryBytes === undefined ? 'its memory' : formatBytes(memoryBytes)
  if (sharing === 'session') return 'session: each rollout has a session of its own on the one server'
  if (sharing === 'shared') {
    return 'command' in config
      ? `shared: one process for all rollouts, ${memory} in all`
      : 'shared: one session for all rollouts'
  }
  const max = config.pool?.max ?? defaultPoolSize
  const whole = memoryBytes === undefined ? '' : `, ${formatBytes(memoryBytes * max)} with ${max} at once`
  const isHarmless = tools.count > 0 && tools.readOnly === tools.count
  const advice = isHarmless
    ? 'all its tools say that they only read, so "sharing": "shared" is likely right: one process for all'
    : 'if it keeps nothing between calls, "sharing": "shared" takes one process for all'
  return `pooled: a process for each rollout, ${memory} each${whole}; ${advice}`
}
