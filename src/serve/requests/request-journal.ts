import { z } from 'zod'
import type { Environment } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { earlierLaunch, type EarlierLaunch, planOne, type RunConfig } from '../../eval/index.ts'
import { TimeSlice } from '../../kit/index.ts'
import { waitsForGroups, type PlannedRollout, recordWithoutRun } from '../../rollout/index.ts'
import { describeIssues, rolloutId, safeParse } from '../../schema/index.ts'
import {
  type EventEntry,
  isDamage,
  type Journal,
  type JournalEntry,
  type RunReader,
  type RunStore,
} from '../../store/index.ts'
import { countOutcome, type PendingRollout, type KnownRequest } from './known-request.ts'
import { type ValidatedTask, checkTask, JsonText } from './request-body.ts'
import { messageBytes, requestTerms, type RequestTerms, rolloutTerms, termsSchema } from './request-terms.ts'

/**
 * A request in the journal: a `request` event after its tasks, which are kept as those of any run are. If they are large, there
 * is a `request-tasks` event after each part of them. The `request` event comes last: without it the request was never accepted.
 * `request-detached` and `request-undelivered` events may follow.
 */
const names = {
  request: 'request',
  tasks: 'request-tasks',
  detached: 'request-detached',
  undelivered: 'request-undelivered',
} as const

/** More tasks than this are a part of their own, so that no message to the writer takes long to make. */
const maxPartCharacters = 512 * 1024
const maxPartTasks = 500

/** What the events hold; a later version may have written more. */
const partSchema = z.object({ firstTask: z.int(), upTo: z.int() })
const requestSchema = z.object({
  id: z.string(),
  digest: z.string(),
  firstTask: z.int(),
  attempts: z.int(),
  isDetached: z.boolean(),
  tasks: z.int(),
})

const detachedSchema = z.object({ id: z.string() })
const undeliveredSchema = z.object({ id: z.string(), isUndelivered: z.boolean() })

export async function journalRequest(
  journal: Journal,
  request: KnownRequest,
  parts: { readonly tasks: readonly ValidatedTask[]; readonly terms: RequestTerms },
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
  journal.appendAll([...entries, event(names.request, { ...known, ...requestTerms(parts.terms) })])
  await journal.durable()
}

/** Resolves once it is on disk that a request, which is there already, was asked for again as detached. */
export async function journalDetached(journal: Journal, { id }: KnownRequest): Promise<void> {
  journal.append(eventOfRun(names.detached, Date.now(), JSON.stringify({ id })))
  await journal.durable()
}

/** Nobody waits until it is on disk. */
export function journalUndelivered(journal: Journal, id: string, isUndelivered: boolean): void {
  journal.append(eventOfRun(names.undelivered, Date.now(), JSON.stringify({ id, isUndelivered })))
}

function eventOfRun(name: string, at: number, data: string): EventEntry {
  return { kind: 'event', rollout: null, attempt: 0, name, at, data }
}

export interface JournalledRequest {
  readonly request: KnownRequest
  readonly terms: RequestTerms
  readonly task: (index: number) => JsonText
  readonly problem?: MillraceError
}

type OnChange = (id: string, change: Pick<KnownRequest, 'isUndelivered'> | Pick<KnownRequest, 'isDetached'>) => void

/** Every accepted request, in order, and the number of the next task. `onChange`: of one that was yielded before. */
export async function* readRequests(
  reader: RunReader,
  onChange: OnChange,
): AsyncGenerator<JournalledRequest, number, void> {
  let nextTask = 0
  for await (const { name, at, data } of new TimeSlice().over(reader.events())) {
    if (name === names.tasks) {
      nextTask = Math.max(nextTask, readEvent(partSchema, data).upTo)
    } else if (name === names.request) {
      const known = readEvent(requestSchema, data)
      nextTask = Math.max(nextTask, known.firstTask + known.tasks)
      const task = (index: number): JsonText => storedTask(reader, index)
      yield { request: { ...known, at, outcomes: {} }, task, ...readTerms(data) }
    } else if (name === names.detached) {
      onChange(readEvent(detachedSchema, data).id, { isDetached: true })
    } else if (name === names.undelivered) {
      const { id, isUndelivered } = readEvent(undeliveredSchema, data)
      onChange(id, { isUndelivered })
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
function readTerms(stored: unknown): Pick<JournalledRequest, 'terms' | 'problem'> {
  const { success, data: terms, error } = safeParse(termsSchema, stored)
  if (success) return { terms }
  const why = `it was recorded by another version of Millrace: ${describeIssues(error.issues)}`
  const problem = new MillraceError('store_version', `${why}; send it again with another id, or to that version`)
  return { terms: {}, problem }
}

function readEvent<Schema extends z.ZodType>(schema: Schema, data: unknown): z.output<Schema> {
  const { success, data: value, error } = safeParse(schema, data)
  if (success) return value
  throw new MillraceError(
    'store_failed',
    `the run holds a request that cannot be read: ${describeIssues(error.issues)}; start another run with --run <name> (run.name)`,
  )
}

interface RecoveredRequest {
  readonly request: KnownRequest
  readonly unfinished: readonly PendingRollout[]
}

interface Recovery {
  readonly environment: Environment
  readonly config: RunConfig
  readonly earlier: EarlierLaunch
  readonly journal: Journal
  readonly reader: RunReader
}

/** What earlier launches of a run accepted, request by request; returns the number of the next task. */
export async function* recoverRequests(
  { reader, journal }: Pick<RunStore, 'reader' | 'journal'>,
  parts: Pick<Recovery, 'environment' | 'config'> & { readonly onChange: OnChange },
): AsyncGenerator<RecoveredRequest, number, void> {
  const recovery: Recovery = { ...parts, journal, reader, earlier: earlierLaunch(reader, parts.config.retries) }
  const requests = readRequests(reader, parts.onChange)
  for (;;) {
    const next = await requests.next()
    if (next.done) return next.value
    yield await recover(next.value, recovery)
  }
}

async function recover(journalled: JournalledRequest, recovery: Recovery): Promise<RecoveredRequest> {
  const { request, problem } = journalled
  const unfinished: PendingRollout[] = []
  for (let index = request.firstTask; index < request.firstTask + request.tasks; index += 1) {
    const due: number[] = []
    for (let sample = 0; sample < request.attempts; sample += 1) {
      const outcome = recovery.reader.endedOutcome(rolloutId(index, sample))
      if (outcome === undefined) due.push(sample)
      else countOutcome(request, outcome)
    }
    if (due.length === 0) continue
    const checked = problem ?? (await checkAgain(recovery.environment, () => journalled.task(index)))
    const bytes = checked instanceof MillraceError ? 0 : checked.bytes + messageBytes(journalled.terms)
    for (const sample of due) {
      const plan = planAgain({ index, sample, checked, terms: journalled.terms }, recovery)
      unfinished.push({ plan, bytes })
    }
  }
  return { request, unfinished }
}

/** It was valid when it was accepted: if it is not, the environment has changed. */
async function checkAgain(environment: Environment, read: () => unknown): Promise<ValidatedTask | MillraceError> {
  let task: unknown
  try {
    task = read()
  } catch (error) {
    // It ends what is left of this task alone.
    if (isDamage(error)) return error
    throw error
  }
  const checked = await checkTask(environment, task, Number.POSITIVE_INFINITY)
  if (typeof checked !== 'string') return checked
  return new MillraceError('task_invalid', `the task does not fit the environment any more: ${checked}`)
}

function planAgain(
  due: {
    readonly index: number
    readonly sample: number
    readonly checked: ValidatedTask | MillraceError
    readonly terms: RequestTerms
  },
  { config, earlier, journal }: Recovery,
): PlannedRollout {
  const { index, sample, checked, terms } = due
  const id = rolloutId(index, sample)
  const unfinished = earlier.unfinished(id)
  if (checked instanceof MillraceError) {
    const labels = { environment: config.environment.name, model: config.model }
    const task = { index, id: String(index) }
    // What an earlier launch has of it is another attempt, and stays in the journal with what it cost.
    const attempt = (unfinished?.attempt ?? 0) + 1
    const record = recordWithoutRun({ ...labels, id, task, sample, attempt, outcome: 'env_error', error: checked })
    return { kind: 'settled', record }
  }
  const { name, digest, value } = checked
  const plan = planOne({
    id,
    sample,
    item: { index, id: name ?? String(index), digest, task: value },
    unfinished,
    isWaitingForGroups: waitsForGroups(config.group),
    journal,
  })
  return plan.kind === 'settled' ? plan : { ...plan, ...rolloutTerms(terms) }
}
