import { type CallToolResult, type ContentBlock, Server } from '@modelcontextprotocol/server'
import { type Environment, type LoadedEnvironment, readTasks, type RolloutContext } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import {
  AbortScope,
  ArraySet,
  hash32,
  deepCopy,
  withAbort,
  Resource,
  Semaphore,
  type Variables,
} from '../../kit/index.ts'
import { setUp, setupFailure, tearDown } from '../../rollout/index.ts'
import type { ContentPart, ToolDefinition } from '../../schema/index.ts'
import {
  noServers,
  serverConfigsOf,
  type ServerLease,
  ToolBox,
  type ToolResult,
  ToolServers,
} from '../../tools/index.ts'

/** Calls of one session at once; so many again wait, and what is beyond them is refused. */
const maxCalls = 64
/** Tidying up gets a moment, as at the end of a rollout. */
const tearDownMs = 10_000

interface EnvironmentCall {
  readonly id: string
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly signal: AbortSignal
}

/** One client's use of an environment's tools, without a model: `setup`, calls through the tool box, `teardown`. */
export class EnvironmentSession extends Resource {
  readonly #served: ServedTools
  readonly #lease: ServerLease | undefined
  readonly #context: SessionContext
  readonly #permits = new Semaphore(maxCalls, maxCalls)
  readonly #order = new CallOrder()
  readonly #running = new ArraySet<AbortScope>()

  private constructor(served: ServedTools, id: string, lease: ServerLease | undefined) {
    super()
    this.#served = served
    this.#lease = lease
    const { task, options } = served
    this.#context = sessionContext({
      task: deepCopy(task.data),
      options: deepCopy(options),
      rollout: { id, attempt: 1, sample: 0, seed: hash32(task.id) },
      servers: lease ?? noServers,
      signal: this.closedSignal,
    })
  }

  /** Sets the environment up. Where that fails, or is abandoned, it is torn down again first. */
  static async open(
    served: ServedTools,
    { id, signal }: { id: string; signal: AbortSignal },
  ): Promise<EnvironmentSession> {
    const session = new EnvironmentSession(served, id, await served.lease(signal))
    const context = session.#context
    const { task, options, rollout, servers } = context
    try {
      context.state = await setUp(served.environment, { task, options, rollout, servers, signal })
      return session
    } catch (thrown) {
      const failure = setupFailure(thrown, signal)
      await session.close().catch(() => {})
      throw failure
    }
  }

  get name(): string {
    return this.#served.name
  }

  get description(): string | undefined {
    return this.#served.environment.description
  }

  get definitions(): readonly ToolDefinition[] {
    return this.#served.box.definitions
  }

  /** One call. What the tool does wrong is a result; rejects with the signal's reason, `overloaded`, or what ends an attempt. */
  async call({ id, name, arguments: given, signal }: EnvironmentCall): Promise<ToolResult> {
    this.throwIfClosed()
    await this.#permits.acquire(signal)
    using scope = new AbortScope(signal)
    this.#running.add(scope)
    try {
      // It may have ended while this call waited.
      this.throwIfClosed()
      const isExclusive = this.#served.environment.tools?.[name]?.exclusive === true
      const call = { id, type: 'function', function: { name, arguments: JSON.stringify(given) } } as const
      const run = (): Promise<ToolResult[]> =>
        this.#served.box.call([call], { context: this.#context, signal: scope.signal })
      const [result] = await this.#order.run(run, { isExclusive, signal: scope.signal })
      if (!result) throw new MillraceError('internal', `${name} returned no result`)
      return result
    } finally {
      this.#running.delete(scope)
      this.#permits.release()
    }
  }

  protected async onClose(): Promise<void> {
    for (const scope of this.#running) scope.abort(this.closedSignal.reason)
    await using parts = new AsyncDisposableStack()
    parts.use(this.#lease)
    parts.defer(() => this.#tearDown())
  }

  async #tearDown(): Promise<void> {
    const failure = await tearDown(this.#served.environment, this.#context, {
      untilMs: performance.now() + tearDownMs,
    })
    if (failure) throw failure
  }
}

interface QueueEntry {
  readonly isExclusive: boolean
  readonly turn: PromiseWithResolvers<void>
}

/** Lets calls run beside each other, except for exclusive ones, which run alone. First come, first served. */
class CallOrder {
  readonly #waiting: QueueEntry[] = []
  #running = 0
  #exclusiveRuns = false

  async run<T>(
    work: () => Promise<T>,
    { isExclusive, signal }: { readonly isExclusive: boolean; readonly signal: AbortSignal },
  ): Promise<T> {
    const entry: QueueEntry = { isExclusive, turn: Promise.withResolvers() }
    this.#waiting.push(entry)
    this.#admit()
    try {
      await withAbort(entry.turn.promise, signal)
      return await work()
    } finally {
      const at = this.#waiting.indexOf(entry)
      if (at === -1) this.#leave()
      else this.#waiting.splice(at, 1)
      this.#admit()
    }
  }

  #leave(): void {
    this.#running -= 1
    // It ran alone, so nobody else can have left.
    this.#exclusiveRuns = false
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next; next = this.#waiting[0]) {
      if (this.#exclusiveRuns || (next.isExclusive && this.#running > 0)) return
      this.#waiting.shift()
      this.#running += 1
      this.#exclusiveRuns = next.isExclusive
      next.turn.resolve()
    }
  }
}

type SessionContext = { -readonly [Key in keyof Context]: Context[Key] }
type Context = RolloutContext<unknown, unknown, unknown>

/** What a tool is given without a rollout around it: a task and a state, but no model, budget or record. */
function sessionContext(parts: Pick<Context, 'task' | 'options' | 'rollout' | 'servers' | 'signal'>): SessionContext {
  return {
    ...parts,
    state: undefined,
    budget: {
      turnsLeft: Infinity,
      tokensLeft: Infinity,
      costLeftUsd: Infinity,
      workingMsLeft: Infinity,
      wallMsLeft: Infinity,
    },
    child() {
      const why = 'a child rollout needs a model, but tools are served without a model'
      return Promise.reject(new MillraceError('tool_failed', why))
    },
    metric() {},
    note() {},
  }
}

export function mcpServer(session: EnvironmentSession, version: string): Server {
  const { name, description } = session
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
        arguments: params.arguments ?? {},
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

interface ChosenTask {
  readonly id: string
  readonly data: unknown
}

/** What all sessions of an MCP server share: an environment's tools, their task, and the tool servers they call. */
export class ServedTools extends Resource {
  readonly name: string
  readonly environment: Environment
  readonly options: unknown
  readonly box: ToolBox<RolloutContext<unknown, unknown, unknown>>
  readonly task: ChosenTask
  readonly #servers: ToolServers | undefined

  private constructor(
    { name, environment, options }: LoadedEnvironment,
    parts: { readonly box: ServedTools['box']; readonly task: ChosenTask; readonly servers: ToolServers | undefined },
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
    const box: ServedTools['box'] = new ToolBox(environment.tools ?? {})
    if (box.definitions.length === 0) {
      throw new MillraceError('env_invalid', `${name} has no tools of its own to serve: declare some in \`tools\``)
    }
    const chosen = await taskAt(environment, options, { index: task, signal })
    return new ServedTools(loaded, { box, task: chosen, servers: serversOf(loaded, env) })
  }

  async lease(signal: AbortSignal): Promise<ServerLease | undefined> {
    return await this.#servers?.lease({ signal })
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
): Promise<ChosenTask> {
  let count = 0
  for await (const item of await readTasks(environment, options, { limit: index + 1, signal })) {
    count += 1
    if (item.index !== index) continue
    if (item.problem) throw item.problem
    return { id: item.id, data: item.task }
  }
  throw new MillraceError(
    'config_invalid',
    count === 0
      ? `${environment.name} has no tasks, and its tools need one to work on`
      : `${environment.name} has ${count} tasks, so --task (task) is 0 to ${count - 1}, not ${index}`,
  )
}
