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

/** What an attempt's servers had listed, by digest: the data of an `mcp.tools` event. */
const digestsSchema = z.record(z.string(), z.string())

/** What the tool servers of a run offered: enough to know their tools without opening them. */
export class RecordedCatalogues {
  readonly #reader: RunReader
  readonly #catalogues = new Map<string, ToolCatalogue>()
  /** The same lists are the same array, so that a tool box is made of them once. */
  readonly #sets = new Map<string, readonly ToolCatalogue[]>()

  constructor(reader: RunReader) {
    this.#reader = reader
    for (const { data } of reader.events('mcp.catalogue')) {
      const { success, data: catalogue } = catalogueSchema.safeParse(data)
      if (success) this.#catalogues.set(nameOf(catalogue.server, catalogue.digest), catalogue)
    }
  }

  /** What an attempt had; undefined if it had no servers. */
  of(rollout: string, attempt: number): readonly ToolCatalogue[] | undefined {
    // A rollout that was resumed opened its servers again; what it had then is what its end was made with.
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
