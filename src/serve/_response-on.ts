import { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * What is being written on a connection, if anything: also a reply that has not begun. Node itself looks here when a
 * connection fails, and has no other name for it.
 */
export function responseOn(socket: Socket): ServerResponse | undefined {
  const current = '_httpMessage' in socket ? socket._httpMessage : undefined
  return current instanceof ServerResponse ? current : undefined
}
