import { type CallToolResult, type ContentBlock, Server } from '@modelcontextprotocol/server'
import { type Environment, type LoadedEnvironment, readTasks } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { Resource, type Variables } from '../../kit/index.ts'
import { EnvironmentSession, type RolloutTools, type SessionHost, type RolloutJob } from '../../rollout/index.ts'
import type { ContentPart } from '../../schema/index.ts'
import { noServers, serverConfigsOf, ToolBox, type ToolResult, ToolServers } from '../../tools/index.ts'

export function mcpServer(
  { name, environment: { description } }: ServedTools,
  session: EnvironmentSession,
  version: string,
): Server {
  const server = new Server(
    { name, version },
    { capabilities: { tools: {} }, ...(description !== undefined && { instructions: description }) },
  )
  const tools = session.definitions.map(({ function: tool }) => ({
    name: tool.name,
    ...(tool.description !== undefined && { description: tool.description }),
    // The tool box takes nothing but objects.
    inputSchema: { ...tool.parameters, type: 'object' as const },
  }))
  server.setRequestHandler('tools/list', () => ({ tools }))
  server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) =>
    callResult(
      await session.call({
        id: String(mcpReq.id),
        name: params.name,
        arguments: JSON.stringify(params.arguments ?? {}),
        signal: mcpReq.signal,
      }),
    ),
  )
  return server
}

const dataUrl = /^data:([^;,]+);base64,(.*)$/s

/** The result of a tool as MCP has it: what the model gets as a failure is an error there, too. */
function callResult({ message, record }: ToolResult): CallToolResult {
  const { content } = message
  return {
    content: typeof content === 'string' ? [{ type: 'text', text: content }] : content.map(blockOf),
    ...(record.status !== 'ok' && { isError: true }),
  }
}

function blockOf(part: ContentPart): ContentBlock {
  if (part.type === 'text') return part
  if (part.type === 'other') return { type: 'text', text: JSON.stringify(part.value) }
  const { url } = part.image_url
  const [, mimeType, data] = dataUrl.exec(url) ?? []
  if (mimeType !== undefined && data !== undefined) return { type: 'image', mimeType, data }
  return { type: 'resource_link', uri: url, name: 'image' }
}

interface ServedToolsOptions {
  /** Its place among the environment's tasks, from 0; the first if not given. */
  readonly task?: number | undefined
  readonly env: Variables
  readonly signal?: AbortSignal | undefined
}

/** What all sessions of an MCP server share: an environment's tools, their task, and the tool servers they call. */
export class ServedTools extends Resource implements SessionHost {
  readonly name: string
  readonly environment: Environment
  readonly options: unknown
  readonly box: RolloutTools['box']
  readonly task: RolloutJob['task']
  readonly #servers: ToolServers | undefined

  private constructor(
    { name, environment, options }: LoadedEnvironment,
    parts: {
      readonly box: RolloutTools['box']
      readonly task: RolloutJob['task']
      readonly servers: ToolServers | undefined
    },
  ) {
    super()
    this.name = name
    this.environment = environment
    this.options = options
    this.box = parts.box
    this.task = parts.task
    this.#servers = parts.servers
  }

  /** Refuses an environment that has no tools of its own, and a task that is not there or not valid. */
  static async open(loaded: LoadedEnvironment, { task = 0, env, signal }: ServedToolsOptions): Promise<ServedTools> {
    const { name, environment, options } = loaded
    const box: RolloutTools['box'] = new ToolBox(environment.tools ?? {})
    if (box.definitions.length === 0) {
      throw new MillraceError('env_invalid', `${name} has no tools of its own to serve: declare some in \`tools\``)
    }
    const chosen = await taskAt(environment, options, { index: task, signal })
    return new ServedTools(loaded, { box, task: chosen, servers: serversOf(loaded, env) })
  }

  session({ id, signal }: { readonly id: string; readonly signal: AbortSignal }): Promise<EnvironmentSession> {
    return EnvironmentSession.open(this, { id, task: this.task, signal })
  }

  /** The tools of servers are left out: a client can use those servers itself. */
  async lease(_job: RolloutJob, signal: AbortSignal): Promise<RolloutTools> {
    const { box } = this
    const lease = await this.#servers?.lease({ signal })
    if (!lease) return { box, servers: noServers, failures: [] }
    return { box, servers: lease, failures: lease.failures, release: () => lease[Symbol.asyncDispose]() }
  }

  protected async onClose(): Promise<void> {
    await this.#servers?.close()
  }
}

/** Nothing starts before the first lease. */
function serversOf(
  { environment, options }: LoadedEnvironment,
  env: ServedToolsOptions['env'],
): ToolServers | undefined {
  const servers = serverConfigsOf(environment, options, env)
  return Object.keys(servers).length === 0 ? undefined : new ToolServers({ servers, onEvent: () => {} })
}

async function taskAt(
  environment: Environment,
  options: unknown,
  { index, signal }: { readonly index: number; readonly signal: AbortSignal | undefined },
): Promise<RolloutJob['task']> {
  let count = 0
  for await (const item of await readTasks(environment, options, { limit: index + 1, signal })) {
    count += 1
    if (item.index !== index) continue
    if (item.problem) throw item.problem
    return { index, id: item.id, data: item.task }
  }
  throw new MillraceError(
    'config_invalid',
    count === 0
      ? `${environment.name} has no tasks, and its tools need one to work on`
      : `${environment.name} has ${count} tasks, so --task (task) is 0 to ${count - 1}, not ${index}`,
  )
}
