import { once } from 'node:events'
import { createServer } from 'node:net'
import { MillraceError } from '../errors/index.ts'

/** Throws what listening there would. To be asked before anything is made that a server without a door leaves behind. */
export async function requireFreePort(host: string, port: number): Promise<void> {
  const server = createServer()
  try {
    await once(server.listen({ host, port }), 'listening')
  } catch (error) {
    throw cannotListen(error, { host, port })
  }
  await once(server.close(), 'close')
}

/** `flag` is how the port was given. */
export function cannotListen(
  cause: unknown,
  { host, port, flag = '--port (port)' }: { host: string; port: number; flag?: string | undefined },
): MillraceError {
  const { rawMessage } = MillraceError.from(cause, 'config_invalid')
  return new MillraceError(
    'config_invalid',
    `cannot listen on ${host}:${port}: ${rawMessage}. Choose another ${flag}, or 0 for any`,
    { cause },
  )
}
