import { misbehaving } from '../../fixtures/mcp/misbehaving.ts'
import { Semaphore } from '../../../src/kit/index.ts'
import { McpSession } from '../../../src/tools/mcp/session/mcp-session.ts'
import type { ServerCall } from '../../../src/tools/mcp/transports/pending-calls.ts'
import type { ServerOptions } from '../../../src/tools/mcp/config/server-config.ts'
import type { ServerEvent } from '../../../src/tools/mcp/session/server-events.ts'

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
