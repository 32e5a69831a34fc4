import { readFileSync } from 'node:fs'
import type { ServerLog } from '../fixtures/mcp/misbehaving.ts'

/** What servers noted of these kinds, in the order in which it happened. */
export function notedInOrder(log: ServerLog, ...kinds: readonly string[]): string[] {
  return readFileSync(log.path, 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[0] ?? '')
    .filter((kind) => kinds.includes(kind))
}
