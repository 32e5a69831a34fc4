import { mcpTools, refuseTaken, refuseUnlisted, type ServerConfig, type ToolCatalogue } from '../../tools/index.ts'

/** The names under which models see the tools of several servers, beside an environment's own. */
export class OfferedNames {
  readonly #own: Readonly<Record<string, unknown>>
  #catalogues: readonly ToolCatalogue[] = []
  #configs: Readonly<Record<string, ServerConfig>> = {}

  constructor(ownTools: Readonly<Record<string, unknown>> = {}) {
    this.#own = ownTools
  }

  /**
   * Adds a server, and returns the names of its tools. Throws `config_invalid` if a rollout could not begin: `allow` or
   * `deny` names a tool that the server does not list, or a name is taken by the environment or by a server added before.
   */
  add(catalogue: ToolCatalogue, config: ServerConfig): readonly string[] {
    refuseUnlisted(catalogue)
    const { server } = catalogue
    const catalogues = [...this.#catalogues, catalogue]
    const configs = { ...this.#configs, [server]: config }
    const tools = mcpTools(catalogues, configs)
    refuseTaken(tools, this.#own)
    this.#catalogues = catalogues
    this.#configs = configs
    return Object.entries(tools).flatMap(([name, { origin }]) => (origin?.server === server ? [name] : []))
  }
}
