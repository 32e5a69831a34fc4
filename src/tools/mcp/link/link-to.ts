import { MillraceError } from '../../../errors/index.ts'
import { httpLink } from './_http-transports.ts'
import type { ServerEnding, ServerLink } from './server-link.ts'
import { ServerProcess } from '../process/server-process.ts'
import { StdioTransport } from './_stdio-transport.ts'
import type { ServerConfig, StdioServerConfig } from '../config/server-config.ts'

/** A link to the server of this configuration: its process runs, but nothing was sent yet. */
export async function linkTo(server: string, config: ServerConfig): Promise<ServerLink> {
  return 'url' in config ? httpLink(config) : await stdioLink(server, config)
}

async function stdioLink(server: string, config: StdioServerConfig): Promise<ServerLink> {
  const process = await ServerProcess.start({ server, config })
  const transport = new StdioTransport(process)
  return {
    transport,
    hasRequestPerCall: false,
    ended: process.ended,
    get failure() {
      return transport.failure
    },
    get ending() {
      return endingOf(process)
    },
    sendCall(message, onFailure) {
      transport.send(message).catch((cause: Error) => {
        // A `MillraceError` says that the server cannot have got the message. Any other error means that it is not JSON, which is
        // not the server's fault.
        const kind = cause instanceof MillraceError ? 'lost' : 'refused'
        onFailure({ kind, mayHaveRun: false, cause })
      })
      return undefined
    },
    async close() {
      // First, because `process.close()` is the one that throws if something could not be ended.
      await process.close()
      await transport.close()
    },
  }
}

function endingOf({ exit, stderr }: ServerProcess): ServerEnding {
  return { exitCode: exit?.code ?? undefined, signal: exit?.signal ?? undefined, stderr: stderr || undefined }
}
