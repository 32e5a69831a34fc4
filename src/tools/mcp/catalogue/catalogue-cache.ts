import type { ServerConfig } from '../config/server-config.ts'
import type { ServerTool } from './tool-catalogue.ts'

/** The facts that a list depends on: how the server was started, and what it said it was. */
export interface ListedServer {
  readonly name: string
  readonly config: ServerConfig
  /** Name and version from its `initialize` answer, as one text. */
  readonly version: string
}

/** An environment has a handful of servers; past this the oldest list is forgotten and asked for again. */
const maxLists = 256

/**
 * The complete lists of freshly started servers, so that another process of the same command need not be asked. Only for
 * commands: what is behind a URL may change without notice, and asking costs one round trip.
 *
 * Only the first list of a connection belongs here. What a server lists after `list_changed` may depend on what it was told
 * since, which a fresh process was not; such a change removes the entry instead.
 */
export class CatalogueCache {
  readonly #lists = new Map<string, readonly ServerTool[]>()

  get(server: ListedServer): readonly ServerTool[] | undefined {
    const key = keyOf(server)
    return key === undefined ? undefined : this.#lists.get(key)
  }

  set(server: ListedServer, tools: readonly ServerTool[]): void {
    const key = keyOf(server)
    if (key === undefined) return
    this.#lists.set(key, tools)
    if (this.#lists.size <= maxLists) return
    const [oldest = ''] = this.#lists.keys()
    this.#lists.delete(oldest)
  }

  forget(server: ListedServer): void {
    const key = keyOf(server)
    if (key !== undefined) this.#lists.delete(key)
  }
}

function keyOf({ name, config, version }: ListedServer): string | undefined {
  if (!('command' in config)) return undefined
  const { command, args = [], env = {}, cwd = null } = config
  const variables = Object.entries(env).sort(([left], [right]) => (left < right ? -1 : 1))
  return JSON.stringify([name, command, args, variables, cwd, version])
}
