import { inspect } from 'node:util'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { nearestNames } from '../../kit/index.ts'
import {
  openingEvent,
  type PromptOverride,
  readServerAnswers,
  readSessions,
  readVerdicts,
  type RecordedAnswer,
  type RecordedVerdict,
  type StoredSession,
} from '../../rollout/index.ts'
import { messageSchema, type RolloutRecord } from '../../schema/index.ts'
import type { RunReader } from '../../store/index.ts'
import type { ToolCatalogue } from '../../tools/index.ts'

export interface RecordedRollout {
  readonly record: RolloutRecord
  /** The rollout's own first, then its children, each before its own children. */
  readonly sessions: readonly StoredSession[]
  readonly verdicts: readonly RecordedVerdict[]
  readonly serverAnswers: readonly RecordedAnswer[]
  /** The messages that it began with, if they came with its request. */
  readonly opening?: PromptOverride
}

/** Reads one rollout whole. If it has no accepted result, throws `run_not_found` with the nearest ids. */
export function readRollout(reader: RunReader, rollout: string): RecordedRollout {
  if (typeof rollout !== 'string') {
    const message = `rollout must be a rollout's id, such as 0-0, not ${inspect(rollout)}`
    throw new MillraceError('config_invalid', message)
  }
  const record = reader.rollout(rollout)
  if (!record) throw noRollout(reader, rollout)
  const { attempt } = record
  const [own, ...children] = readSessions(reader, rollout, attempt)
  const sessions = own ? [{ ...own, record }, ...children] : []
  return {
    record,
    sessions,
    verdicts: sessions.flatMap(({ id }) => readVerdicts(reader, id, attempt)),
    serverAnswers: readServerAnswers(reader, rollout, attempt),
    ...openingOf(reader, record),
  }
}

const openingSchema = z.object({ messages: z.array(messageSchema) })

function openingOf(reader: RunReader, { id, attempt }: RolloutRecord): Pick<RecordedRollout, 'opening'> {
  const [event] = reader.eventsOf(id, attempt, openingEvent)
  if (!event) return {}
  const { success, data: opening, error } = openingSchema.safeParse(event.data)
  if (success) return { opening }
  throw new MillraceError('store_failed', `the messages that ${id} began with cannot be read: ${error.message}`)
}

const maxCandidates = 10_000

function noRollout(reader: RunReader, rollout: string): MillraceError {
  const ids: string[] = []
  for (const each of reader.ended()) {
    ids.push(each.rollout)
    if (ids.length === maxCandidates) break
  }
  const near = nearestNames(rollout, ids)
  const [first] = ids
  const hint =
    near.length > 0
      ? `did you mean ${near.join(' or ')}?`
      : first === undefined
        ? 'none has ended yet'
        : `the first that ended is ${first}`
  return new MillraceError('run_not_found', `the run has no ended rollout ${rollout}; ${hint}`)
}

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
