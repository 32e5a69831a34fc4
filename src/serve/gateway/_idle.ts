import { ServerResponse, type Server } from 'node:http'
import type { Socket } from 'node:net'

/**
 * What is being written on a connection, if anything: also a reply that has not begun. Node itself looks here when a
 * connection fails, and has no other name for it.
 */
export function responseOn(socket: Socket): ServerResponse | undefined {
  const current = '_httpMessage' in socket ? socket._httpMessage : undefined
  return current instanceof ServerResponse ? current : undefined
}

/** Ends connections on which nothing moved for as long as was said of them, unless it is we who are slow. */
export function endIdleConnections(server: Server): void {
  server.on('timeout', (socket: Socket) => {
    if (socket.writableLength > 0 || !responseOn(socket)) socket.destroy()
  })
}
