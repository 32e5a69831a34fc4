import { misbehaving } from '../../../../test/fixtures/mcp/misbehaving.ts'
import { Semaphore } from '../../../kit/index.ts'
import { McpSession } from '../session/mcp-session.ts'
import type { ServerCall } from '../session/server-call.ts'
import type { ServerOptions } from '../config/server-config.ts'
import type { ServerEvent } from '../session/server-events.ts'

/** A session with the misbehaving server, and what it told; closed with its scope. */
export function sessionWith(modes: string[], options: ServerOptions = {}, starts = new Semaphore(2)) {
  const events: ServerEvent[] = []
  const config = { ...misbehaving(...modes), ...options }
  const session = new McpSession({ name: 'mis', config, starts, onEvent: (event) => events.push(event) })
  return { session, events, starts, [Symbol.asyncDispose]: () => session.close() }
}

export const calm = new AbortController().signal

export const calling = (tool: string, given: Record<string, unknown> = { message: 'hi' }): ServerCall => ({
  tool,
  arguments: given,
  signal: calm,
})

export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
