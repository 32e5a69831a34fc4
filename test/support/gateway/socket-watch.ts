/**
 * Loaded before a command, into each of its threads: writes a line to the file that SOCKET_LOG names for every socket that
 * listens, is connected or is accepted, and for every HTTP request that is sent or received.
 */
import { subscribe } from 'node:diagnostics_channel'
import { appendFileSync } from 'node:fs'

const channels = [
  'tracing:net.server.listen:asyncStart',
  'net.client.socket',
  'net.server.socket',
  'http.client.request.start',
  'http.server.request.start',
  'undici:client:connected',
  'undici:request:create',
]

const log = process.env['SOCKET_LOG']
if (log === undefined) throw new Error('SOCKET_LOG must name a file')
for (const channel of channels) subscribe(channel, () => appendFileSync(log, `${channel}\n`))
