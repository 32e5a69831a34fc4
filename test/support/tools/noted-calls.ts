import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import type { ServerLog } from '../../fixtures/mcp/misbehaving.ts'

export interface NotedCall {
  /** Of the server that was called. */
  readonly pid: number
  readonly tool: string
  /** See _long-task-model.ts. */
  readonly key: string
}

/** The calls that reached servers, in order, as far as their lines are whole. */
export function notedCalls(log: string): NotedCall[] {
  return readFileSync(log, 'utf8')
    .split('\n')
    .slice(0, -1)
    .filter((line) => line.startsWith('call '))
    .map((line) => {
      const [, pid, tool = '', given = '{}'] = line.split(' ')
      const { message = '' } = JSON.parse(given) as { message?: string }
      return { pid: Number(pid), tool, key: message }
    })
}

/** How often each call was made, by its key. */
export function timesMade(calls: readonly NotedCall[]): Map<string, number> {
  const times = new Map<string, number>()
  for (const { key } of calls) times.set(key, (times.get(key) ?? 0) + 1)
  return times
}

const lookEveryMs = 2

/** Resolves once so many calls were noted, or there will be no more: `isOver` says so. */
export async function callsNoted(log: string, count: number, isOver: () => boolean): Promise<void> {
  while (notedCalls(log).length < count && !isOver()) await pause(lookEveryMs)
}

/** What servers noted of these kinds, in the order in which it happened. */
export function notedInOrder(log: ServerLog, ...kinds: readonly string[]): string[] {
  return readFileSync(log.path, 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[0] ?? '')
    .filter((kind) => kinds.includes(kind))
}
