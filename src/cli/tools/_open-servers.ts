import { availableParallelism } from 'node:os'
import { MillraceError } from '../../errors/index.ts'
import { Semaphore, type Variables } from '../../kit/index.ts'
import { McpSession, refuseUnlisted, type ToolCatalogue } from '../../tools/index.ts'
import { isRequired, serverConfig, transportOf, type ToolSource, type Transport } from './tool-source.ts'

/** A server that was opened: with its session and catalogue, or with the error why it has none. */
export type OpenedServer = {
  readonly server: string
  readonly transport: Transport
  readonly isRequired: boolean
  readonly ms: number
} & (
  | { readonly session: McpSession; readonly catalogue: ToolCatalogue; readonly error?: undefined }
  | { readonly error: MillraceError; readonly session?: undefined; readonly catalogue?: undefined }
)

/** All servers of a source, each with a session of its own. */
export interface OpenServers extends AsyncDisposable {
  readonly all: readonly OpenedServer[]
}

/** Opens all servers at once. A server that fails, or whose entry is wrong, is included with its error. */
export async function openServers(
  source: ToolSource,
  { env, signal }: { readonly env: Variables; readonly signal: AbortSignal },
): Promise<OpenServers> {
  const starts = new Semaphore(Math.max(8, availableParallelism() * 4))
  await using sessions = new AsyncDisposableStack()
  const open = async (name: string): Promise<OpenedServer> => {
    const startedAt = performance.now()
    const entry = source.servers[name]
    const facts = { server: name, transport: transportOf(entry), isRequired: isRequired(entry) }
    try {
      const config = serverConfig(source, name, env)
      const session = sessions.use(new McpSession({ name, config, starts, onEvent: () => {} }))
      const catalogue = await session.open(signal)
      refuseUnlisted(catalogue)
      return { ...facts, session, catalogue, ms: performance.now() - startedAt }
    } catch (error) {
      return { ...facts, error: MillraceError.from(error, 'tool_infra'), ms: performance.now() - startedAt }
    }
  }
  const all = await Promise.all(Object.keys(source.servers).map(open))
  signal.throwIfAborted()
  const kept = sessions.move()
  return { all, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}
