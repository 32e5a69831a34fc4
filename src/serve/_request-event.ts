import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { TimeSlice } from '../kit/index.ts'
import { describeIssues, samplingSchema, type Sampling } from '../schema/index.ts'
import type { EventEntry, Journal, JournalEntry, RunReader } from '../store/index.ts'
import type { CheckedTask } from './_check-tasks.ts'
import type { KnownRequest } from './known-request.ts'
import { JsonText } from './rollout-request.ts'

/**
 * A request in the journal: a `request` event after its tasks, which are kept as those of any run are. If they are large, there
 * is a `request-tasks` event after each part of them. The `request` event comes last: without it the request was never accepted.
 * A `request-detached` event may follow. Earlier versions of Millrace kept the tasks in the events.
 */
const names = { request: 'request', tasks: 'request-tasks', detached: 'request-detached' } as const

/** More tasks than this are a part of their own, so that no message to the writer takes long to make. */
const maxPartCharacters = 512 * 1024
const maxPartTasks = 500

/** What the events hold; a later version may have written more. */
const partSchema = z.object({ firstTask: z.int(), upTo: z.int(), tasks: z.array(z.unknown()).exactOptional() })
const requestSchema = z.object({
  id: z.string(),
  digest: z.string(),
  firstTask: z.int(),
  attempts: z.int(),
  isDetached: z.boolean(),
  sampling: z.unknown().exactOptional(),
  /** How many; of an earlier version the last of them. */
  tasks: z.union([z.int(), z.array(z.unknown())]),
})

const detachedSchema = z.object({ id: z.string() })

/** Resolves once the request is on disk. Rejects if the store can take no more. */
export async function journalRequest(
  journal: Journal,
  request: KnownRequest,
  parts: { readonly tasks: readonly CheckedTask[]; readonly sampling: Sampling | undefined },
): Promise<void> {
  const { at, outcomes: _outcomes, ...known } = request
  const event = (name: string, data: object): EventEntry => eventOfRun(name, at, JSON.stringify(data))
  let entries: JournalEntry[] = []
  let characters = 0
  for (const [offset, { text, digest, name }] of parts.tasks.entries()) {
    const index = request.firstTask + offset
    const isFull = characters + text.length > maxPartCharacters || entries.length === maxPartTasks
    if (isFull && entries.length > 0) {
      journal.appendAll([...entries, event(names.tasks, { firstTask: request.firstTask, upTo: index })])
      await journal.durable()
      entries = []
      characters = 0
    }
    entries.push({ kind: 'task', index, id: name ?? String(index), digest, row: text })
    characters += text.length
  }
  journal.appendAll([
    ...entries,
    event(names.request, { ...known, ...(parts.sampling && { sampling: parts.sampling }) }),
  ])
  await journal.durable()
}

/** Resolves once it is on disk that a request, which is there already, was asked for again as detached. */
export async function journalDetached(journal: Journal, { id }: KnownRequest): Promise<void> {
  journal.append(eventOfRun(names.detached, Date.now(), JSON.stringify({ id })))
  await journal.durable()
}

function eventOfRun(name: string, at: number, data: string): EventEntry {
  return { kind: 'event', rollout: null, attempt: 0, name, at, data }
}

/** A request as a restarted server finds it. */
export interface JournalledRequest {
  readonly request: KnownRequest
  readonly sampling?: Sampling
  /** The task of this index, as it came with the request. Throws if it cannot be read. */
  readonly task: (index: number) => unknown
  /** Why what is left of it cannot run as it was asked for. */
  readonly problem?: MillraceError
}

/**
 * Every accepted request, in the order they were accepted, a page per turn of the loop; and the number of the next task.
 * `onDetached` is called with the id of a request that was yielded before.
 */
export async function* readRequests(
  reader: RunReader,
  onDetached: (id: string) => void,
): AsyncGenerator<JournalledRequest, number, void> {
  /** Tasks in events of an earlier version, whose request has not come yet, by its first task. */
  const early = new Map<number, unknown[]>()
  let nextTask = 0
  for await (const { name, at, data } of new TimeSlice().over(reader.events())) {
    if (name === names.tasks) {
      const { firstTask, upTo, tasks } = checked(partSchema, data)
      if (tasks) early.set(firstTask, [...(early.get(firstTask) ?? []), ...tasks])
      nextTask = Math.max(nextTask, upTo)
    } else if (name === names.request) {
      const { tasks, sampling, ...known } = checked(requestSchema, data)
      const { firstTask } = known
      const inEvents = typeof tasks === 'number' ? undefined : [...(early.get(firstTask) ?? []), ...tasks]
      early.delete(firstTask)
      const count = typeof tasks === 'number' ? tasks : (inEvents?.length ?? 0)
      nextTask = Math.max(nextTask, firstTask + count)
      const task = (index: number): unknown => (inEvents ? inEvents[index - firstTask] : storedTask(reader, index))
      yield { request: { ...known, tasks: count, at, outcomes: {} }, task, ...readSampling(sampling) }
    } else if (name === names.detached) {
      onDetached(checked(detachedSchema, data).id)
    }
  }
  return nextTask
}

function storedTask(reader: RunReader, index: number): JsonText {
  const text = reader.taskRowText(index)
  if (text !== undefined) return new JsonText(text)
  throw new MillraceError(
    'store_failed',
    `task ${index} of a request is missing; if it matters, restore the run from a copy`,
  )
}

/** Of another version of Millrace it may say what this one does not know, and would leave out of what it asks of the model. */
function readSampling(stored: unknown): Pick<JournalledRequest, 'sampling' | 'problem'> {
  if (stored === undefined) return {}
  const { success, data: sampling, error } = samplingSchema.safeParse(stored)
  if (success) return { sampling }
  const why = `its sampling is of another version of Millrace: ${describeIssues(error.issues)}`
  return { problem: new MillraceError('store_version', `${why}; ask again under another id, or of that version`) }
}

function checked<Schema extends z.ZodType>(schema: Schema, data: unknown): z.output<Schema> {
  const { success, data: value, error } = schema.safeParse(data)
  if (success) return value
  throw new MillraceError(
    'store_failed',
    `the run holds a request that cannot be read: ${describeIssues(error.issues)}; start another run with --run <name> (run.name)`,
  )
}
