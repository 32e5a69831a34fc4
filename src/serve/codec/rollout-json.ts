import { MillraceError } from '../../errors/index.ts'
import { storedItemPieces } from '../../nemo-gym/index.ts'
import { nodeAndChildPieces, type RunReader } from '../../store/index.ts'
import { parseJson } from '../http/body.ts'
import { type ItemForm, replyItemText } from './reply-items.ts'

export interface DecodedBody {
  readonly head: unknown
  readonly tasks?: readonly string[]
  readonly messages?: string
}

/** Most of what looks at a value calls itself for every level: writing it, validating it, sending it to a worker. */
export const maxJsonDepth = 256

/** What a body may say beside its tasks and messages; that part is handed over as objects, which costs the main loop what parsing would. */
const maxHeadCharacters = 64 * 1024
/** Tasks are handed over in lists of about this size, so that taking one takes well under a millisecond. */
const maxListCharacters = 512 * 1024

/** Parses a request body and gives its tasks back as text: strings change threads at the price of a copy, objects do not. */
export function decodeBody(bytes: Uint8Array): DecodedBody {
  const decoded = takeApart(parseJson(bytes, maxJsonDepth))
  if ((JSON.stringify(decoded.head) ?? '').length > maxHeadCharacters) {
    throw new MillraceError(
      'usage',
      `a request has at most ${maxHeadCharacters} characters without its tasks and messages`,
    )
  }
  return decoded
}

export function* listsOf(tasks: readonly string[]): Generator<readonly string[], void, void> {
  let list: string[] = []
  let characters = 0
  for (const text of tasks) {
    if (characters + text.length > maxListCharacters && list.length > 0) {
      yield list
      list = []
      characters = 0
    }
    list.push(text)
    characters += text.length
  }
  if (list.length > 0) yield list
}

function takeApart(parsed: unknown): DecodedBody {
  if (typeof parsed !== 'object' || parsed === null) return { head: parsed }
  if ('messages' in parsed && Array.isArray(parsed.messages)) {
    const { messages, ...rest } = parsed
    return { ...takeApart(rest), messages: JSON.stringify(messages) }
  }
  if ('tasks' in parsed && Array.isArray(parsed.tasks)) {
    const { tasks, ...head } = parsed
    return { head, tasks: (tasks as readonly unknown[]).map((task) => JSON.stringify(task)) }
  }
  if ('task' in parsed && !('tasks' in parsed)) {
    const { task, ...head } = parsed
    return { head, tasks: [JSON.stringify(task)] }
  }
  return { head: parsed }
}

/**
 * How a rollout is written. `record`: its result, with its messages. `tokens`: with its nodes too, token ids and
 * log-probabilities as JSON numbers. `tokens-base64`: the same with every array as base64, a third of the size.
 */
export const recordForms = ['record', 'tokens', 'tokens-base64'] as const
export type RecordForm = (typeof recordForms)[number]

/** How the rollouts of a request are written: each as a record, or by groups, as rows for a trainer. */
export const replyForms = [...recordForms, 'rows', 'interactions'] as const
export type ReplyForm = (typeof replyForms)[number]

const targetBytes = 256 * 1024

/** One rollout as JSON from the run's database. */
export function rolloutChunks(
  reader: RunReader,
  id: string,
  form: RecordForm | ItemForm,
): Generator<Uint8Array<ArrayBuffer>, void, void> {
  if (form === 'items') return chunksOf(storedItemPieces(reader, id).map(replyItemText))
  return chunksOf(form === 'gym-items' ? storedItemPieces(reader, id) : rolloutPieces(reader, id, form))
}

/** Pieces as chunks that own their buffers, so that they can change threads. */
function* chunksOf(pieces: Iterable<string>): Generator<Uint8Array<ArrayBuffer>, void, void> {
  const encoder = new TextEncoder()
  let waiting: string[] = []
  let characters = 0
  for (const piece of pieces) {
    waiting.push(piece)
    characters += piece.length
    if (characters < targetBytes) continue
    yield encoder.encode(waiting.join(''))
    waiting = []
    characters = 0
  }
  if (characters > 0) yield encoder.encode(waiting.join(''))
}

function* rolloutPieces(reader: RunReader, id: string, form: RecordForm): Generator<string, void, void> {
  const record = reader.rollout(id)
  if (!record)
    throw new MillraceError('internal', `rollout ${id} has ended and is not in the store; please report this`)
  if (form === 'record') {
    yield JSON.stringify(record)
    return
  }
  yield JSON.stringify(record).slice(0, -1)
  yield* nodeAndChildPieces(reader, record, form === 'tokens' ? 'numbers' : 'base64')
  yield '}'
}

/** One long message or row makes one long piece: writing it to a socket at once would hold up the loop that does. */
export function* sized(bytes: Uint8Array<ArrayBuffer>): Generator<Uint8Array<ArrayBuffer>, void, void> {
  if (bytes.length <= 2 * targetBytes) {
    yield bytes
    return
  }
  for (let start = 0; start < bytes.length; start += targetBytes) yield bytes.slice(start, start + targetBytes)
}
