import { z } from 'zod'
import type { RunReader } from '../../store/index.ts'
import type { ToolCatalogue } from '../../tools/index.ts'

const schema = z.record(z.string(), z.unknown())
const catalogueSchema = z.object({
  server: z.string(),
  digest: z.string(),
  tools: z.array(
    z.object({
      server: z.string(),
      name: z.string(),
      description: z.string().exactOptional(),
      inputSchema: schema,
      outputSchema: schema.exactOptional(),
      isReadOnly: z.boolean(),
      isIdempotent: z.boolean(),
    }),
  ),
})

/** The digests of what an attempt's servers had listed: the data of an `mcp.tools` event. */
const digestsSchema = z.record(z.string(), z.string())

/** What the tool servers of a run offered: enough to know their tools without opening them. */
export class RecordedCatalogues {
  readonly #reader: RunReader
  readonly #catalogues = new Map<string, ToolCatalogue>()
  /** Equal sets of lists are the same array, so that a tool box is made of them once. */
  readonly #sets = new Map<string, readonly ToolCatalogue[]>()

  constructor(reader: RunReader) {
    this.#reader = reader
    for (const { data } of reader.events('mcp.catalogue')) {
      const { success, data: catalogue } = catalogueSchema.safeParse(data)
      if (success) this.#catalogues.set(nameOf(catalogue.server, catalogue.digest), catalogue)
    }
  }

  /** The catalogues of an attempt; undefined if it had no servers. */
  of(rollout: string, attempt: number): readonly ToolCatalogue[] | undefined {
    // A resumed rollout opened its servers again; its end was made with the latest lists.
    const digests = digestsSchema.safeParse(this.#reader.eventsOf(rollout, attempt, 'mcp.tools').at(-1)?.data).data
    if (!digests) return undefined
    const names = Object.entries(digests).map(([server, digest]) => nameOf(server, digest))
    const key = names.join('\n')
    const known = this.#sets.get(key)
    if (known) return known
    const set = names.map((name) => this.#catalogues.get(name)).filter((each) => each !== undefined)
    this.#sets.set(key, set)
    return set
  }
}

function nameOf(server: string, digest: string): string {
  return `${server} ${digest}`
}
