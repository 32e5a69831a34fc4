import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { responseOn } from '../_response-on.ts'

/** Ends connections on which nothing moved for as long as was said of them, unless it is we who are slow. */
export function endIdleConnections(server: Server): void {
  server.on('timeout', (socket: Socket) => {
    if (socket.writableLength > 0 || !responseOn(socket)) socket.destroy()
  })
}
