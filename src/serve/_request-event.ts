import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { TimeSlice } from '../kit/index.ts'
import { describeIssues, samplingSchema, type Sampling } from '../schema/index.ts'
import type { EventEntry, Journal, JournalEntry, RunReader } from '../store/index.ts'
import type { CheckedTask } from './_check-tasks.ts'
import type { KnownRequest } from './known-request.ts'

/**
 * A request in the journal: a `request` event, preceded, if its tasks are large, by `request-tasks` events with the first
 * of them. The `request` event comes last: without it the request was never accepted. A `request-detached` event may follow.
 */
const names = { request: 'request', tasks: 'request-tasks', detached: 'request-detached' } as const

/** More tasks than this go into an event of their own, so that no message to the writer takes long to make. */
const maxPartCharacters = 512 * 1024
const maxPartTasks = 500

/** What the events hold; a later version may have written more. */
const partSchema = z.object({ firstTask: z.int(), upTo: z.int(), tasks: z.array(z.unknown()) })
const requestSchema = z.object({
  id: z.string(),
  digest: z.string(),
  firstTask: z.int(),
  attempts: z.int(),
  isDetached: z.boolean(),
  sampling: z.unknown().exactOptional(),
  tasks: z.array(z.unknown()),
})

const detachedSchema = z.object({ id: z.string() })

/** Resolves once the request is on disk. Rejects if the store can take no more. */
export async function journalRequest(
  journal: Journal,
  request: KnownRequest,
  parts: { readonly tasks: readonly CheckedTask[]; readonly sampling: Sampling | undefined },
): Promise<void> {
  const { at, tasks: _count, outcomes: _outcomes, ...known } = request
  const event = (name: string, data: string): EventEntry => eventOfRun(name, at, data)
  let entries: JournalEntry[] = []
  let texts: string[] = []
  let characters = 0
  for (const [offset, { text, digest, name }] of parts.tasks.entries()) {
    const index = request.firstTask + offset
    const isFull = characters + text.length > maxPartCharacters || texts.length === maxPartTasks
    if (isFull && texts.length > 0) {
      const head = JSON.stringify({ firstTask: request.firstTask, upTo: index })
      journal.appendAll([...entries, event(names.tasks, withTasks(head, texts))])
      await journal.durable()
      entries = []
      texts = []
      characters = 0
    }
    entries.push({ kind: 'task', index, id: name ?? String(index), digest })
    texts.push(text)
    characters += text.length
  }
  const head = { ...known, ...(parts.sampling && { sampling: parts.sampling }) }
  journal.appendAll([...entries, event(names.request, withTasks(JSON.stringify(head), texts))])
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
  readonly tasks: readonly unknown[]
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
  /** Tasks whose request has not come yet, by its first task. */
  const early = new Map<number, unknown[]>()
  let nextTask = 0
  for await (const { name, at, data } of new TimeSlice().over(reader.events())) {
    if (name === names.tasks) {
      const { firstTask, upTo, tasks } = checked(partSchema, data)
      early.set(firstTask, [...(early.get(firstTask) ?? []), ...tasks])
      nextTask = Math.max(nextTask, upTo)
    } else if (name === names.request) {
      const { tasks, sampling, ...known } = checked(requestSchema, data)
      const { firstTask } = known
      const all = [...(early.get(firstTask) ?? []), ...tasks]
      early.delete(firstTask)
      nextTask = Math.max(nextTask, firstTask + all.length)
      yield { request: { ...known, tasks: all.length, at, outcomes: {} }, tasks: all, ...readSampling(sampling) }
    } else if (name === names.detached) {
      onDetached(checked(detachedSchema, data).id)
    }
  }
  return nextTask
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

/** Put together as text: the tasks are JSON already. */
function withTasks(head: string, texts: readonly string[]): string {
  return `${head.slice(0, -1)},"tasks":[${texts.join(',')}]}`
}
