import { MillraceError } from '../../../errors/index.ts'
import { httpLink } from './_http-transports.ts'
import type { ServerEnding, ServerLink } from './server-link.ts'
import { ServerProcess } from '../process/server-process.ts'
import { StdioTransport } from './_stdio-transport.ts'
import type { ServerConfig, StdioServerConfig } from '../config/server-config.ts'

/** A link to the server of this entry: its process runs, but nothing was said yet. */
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
        // The transport says so if the server cannot have it. Otherwise it is not JSON, for which nobody there is to blame.
        const kind = cause instanceof MillraceError ? 'lost' : 'refused'
        onFailure({ kind, mayHaveRun: false, cause })
      })
      return undefined
    },
    async close() {
      // First, because it is the one that says if something could not be ended.
      await process.close()
      await transport.close()
    },
  }
}

function endingOf({ exit, stderr }: ServerProcess): ServerEnding {
  return { exitCode: exit?.code ?? undefined, signal: exit?.signal ?? undefined, stderr: stderr || undefined }
}
