import { Client, StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client'
import { AbortScope, raced, packageVersion } from '../../kit/index.ts'
import { listTools, type ServerConfig, type ServerTool } from '../../tools/index.ts'
import { formatQuantity } from '../format/count.ts'
import { countTools, type Steps } from './_examination.ts'

const endSessionMs = 1_000

interface HandshakeOptions {
  readonly server: string
  readonly config: ServerConfig
  readonly signal: AbortSignal
  /** Replaces an error of the client by one that says more. */
  readonly explain: (error: unknown) => unknown
}

/** Initialises the session and lists the tools, as two steps. */
export async function handshake(
  steps: Steps,
  transport: Transport,
  { server, config, signal, explain }: HandshakeOptions,
): Promise<readonly ServerTool[]> {
  const client = new Client({ name: 'millrace', version: packageVersion() })
  const options = { signal }
  const explained = (error: unknown): never => {
    // The signal's own reason is thrown, because the client would reword it.
    throw explain(signal.aborted ? signal.reason : error)
  }
  try {
    await steps.take(
      'initialise',
      // Raced, because the older transport waits for its first event and ignores the signal.
      () => raced(client.connect(transport, options), signal).catch(explained),
      () => identity(client),
    )
    return await steps.take(
      'list',
      () => listTools(client, { server, options: config }, options).catch(explained),
      (tools) => {
        const { count, readOnly, idempotent } = countTools(tools)
        if (count === 0) return 'it offers no tools'
        return `${formatQuantity(count, 'tool')}, of which ${readOnly} say they only read and ${idempotent} that they may be repeated`
      },
    )
  } finally {
    await endSession(transport)
    await client.close()
  }
}

/** Ends the session: otherwise a server over HTTP would keep it, and all that belongs to it, until it expires. */
async function endSession(transport: Transport): Promise<void> {
  if (!(transport instanceof StreamableHTTPClientTransport)) return
  using late = new AbortScope(undefined, endSessionMs)
  await raced(transport.terminateSession(), late.signal).catch(() => {})
}

function identity(client: Client): string {
  const { name = 'a server without a name', version = '' } = client.getServerVersion() ?? {}
  const protocol = client.getNegotiatedProtocolVersion()
  return `${name} ${version}`.trim() + (protocol === undefined ? '' : `, protocol ${protocol}`)
}
