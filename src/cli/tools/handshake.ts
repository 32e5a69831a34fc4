import { Client, StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client'
import { AbortScope, raced } from '../../kit/index.ts'
import { formatQuantity } from '../format/count.ts'
import { packageVersion } from '../package-version.ts'
import type { Steps, ToolCounts } from './examination.ts'

const maxPages = 100
const goodbyeMs = 1_000

/** Initialises and lists, as two steps. */
export async function shakeHands(
  steps: Steps,
  transport: Transport,
  { signal, explain }: { readonly signal: AbortSignal; readonly explain: (error: unknown) => unknown },
): Promise<ToolCounts> {
  const client = new Client({ name: 'millrace', version: packageVersion() })
  const options = { signal }
  const explained = (error: unknown): never => {
    throw explain(error)
  }
  try {
    await steps.take(
      'initialise',
      () => client.connect(transport, options).catch(explained),
      () => identity(client),
    )
    return await steps.take(
      'list',
      () => countTools(client, options).catch(explained),
      ({ count, readOnly, idempotent }) => {
        if (count === 0) return 'it offers no tools'
        return `${formatQuantity(count, 'tool')}, of which ${readOnly} say they only read and ${idempotent} that they may be repeated`
      },
    )
  } finally {
    await sayGoodbye(transport)
    await client.close()
  }
}

/** A server over HTTP would keep the session, and what belongs to it, until it expires. */
async function sayGoodbye(transport: Transport): Promise<void> {
  if (!(transport instanceof StreamableHTTPClientTransport)) return
  using late = new AbortScope(undefined, goodbyeMs)
  await raced(transport.terminateSession(), late.signal).catch(() => {})
}

function identity(client: Client): string {
  const { name = 'a server without a name', version = '' } = client.getServerVersion() ?? {}
  const protocol = client.getNegotiatedProtocolVersion()
  return `${name} ${version}`.trim() + (protocol === undefined ? '' : `, protocol ${protocol}`)
}

async function countTools(client: Client, options: { readonly signal: AbortSignal }): Promise<ToolCounts> {
  const counts = { count: 0, readOnly: 0, idempotent: 0 }
  // One that offers only resources or prompts need not know the question.
  if (!client.getServerCapabilities()?.tools) return counts
  let cursor: string | undefined
  for (let page = 0; page < maxPages; page += 1) {
    const params = cursor === undefined ? {} : { cursor }
    const { tools, nextCursor } = await client.request({ method: 'tools/list', params }, options)
    counts.count += tools.length
    counts.readOnly += tools.filter(({ annotations }) => annotations?.readOnlyHint === true).length
    counts.idempotent += tools.filter(({ annotations }) => annotations?.idempotentHint === true).length
    if (nextCursor === undefined) return counts
    cursor = nextCursor
  }
  throw new Error(`its list has more than ${maxPages} pages`)
}
