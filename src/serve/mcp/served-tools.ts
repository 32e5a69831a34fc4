import { readTasks, type Environment, type LoadedEnvironment, type RolloutContext } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { Resource, type Variables } from '../../kit/index.ts'
import { serverConfigsOf, ToolBox, ToolServers, type ServerLease } from '../../tools/index.ts'

export interface ServedToolsOptions {
  /** Its place among the environment's tasks, from 0; the first if not given. */
  readonly task?: number | undefined
  /** For what its tool servers are configured with. */
  readonly env: Variables
  readonly signal?: AbortSignal | undefined
}

interface ChosenTask {
  readonly id: string
  readonly data: unknown
}

/**
 * What all sessions of an MCP door have in common: an environment's own tools, the task they work on, and the tool servers that
 * they may themselves call.
 */
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
    const chosen = await taskAt(environment, options, { place: task, signal })
    return new ServedTools(loaded, { box, task: chosen, servers: serversOf(loaded, env) })
  }

  /** A session's hold on the environment's tool servers, if it has any. */
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
  { place, signal }: { readonly place: number; readonly signal: AbortSignal | undefined },
): Promise<ChosenTask> {
  let count = 0
  for await (const item of await readTasks(environment, options, { limit: place + 1, signal })) {
    count += 1
    if (item.index !== place) continue
    if (item.problem) throw item.problem
    return { id: item.id, data: item.task }
  }
  throw new MillraceError(
    'config_invalid',
    count === 0
      ? `${environment.name} has no tasks, and its tools need one to work on`
      : `${environment.name} has ${count} tasks, so --task (task) is 0 to ${count - 1}, not ${place}`,
  )
}
