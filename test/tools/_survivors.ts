/** What is left of the servers that wrote to a log, and of what they started. */
import type { ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { isRunning, liveDescendants } from './_processes.ts'

/** All that the log knows of: servers, and what those with `fork-grandchild` started. */
export function family(log: ServerLog): number[] {
  return [
    ...log.entries('start').map(({ pid }) => pid),
    ...log.entries('grandchild').map(({ detail }) => Number(detail)),
  ]
}

/** Those of them that run, and servers that were started but have not yet written anything, below us or below `root`. */
export function survivors(log: ServerLog, root = process.pid): number[] {
  const unheard = liveDescendants(root).filter(({ command }) => command.includes(log.path))
  return [...new Set([...family(log), ...unheard.map(({ pid }) => pid)])].filter(isRunning)
}
