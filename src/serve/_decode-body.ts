import { MillraceError } from '../errors/index.ts'
import { parseJson } from './_parse-json.ts'
import type { DecodedBody } from './codec-messages.ts'
import { maxJsonDepth } from './serve-bounds.ts'

/** What a body may say beside its tasks; that part is handed over as objects, which costs the front what parsing would. */
const maxHeadCharacters = 64 * 1024
/** Tasks are handed over in lists of about this size, so that taking one takes well under a millisecond. */
const maxListCharacters = 512 * 1024

/** Parses a request body and gives its tasks back as text: strings change threads at the price of a copy, objects do not. */
export function decodeBody(bytes: Uint8Array): DecodedBody {
  const decoded = takeApart(parseJson(bytes, maxJsonDepth))
  if ((JSON.stringify(decoded.head) ?? '').length > maxHeadCharacters) {
    throw new MillraceError('usage', `a request has at most ${maxHeadCharacters} characters beside its tasks`)
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
  if (typeof parsed !== 'object' || parsed === null) return { head: parsed, tasks: undefined }
  if ('tasks' in parsed && Array.isArray(parsed.tasks)) {
    const { tasks, ...head } = parsed
    return { head, tasks: (tasks as readonly unknown[]).map((task) => JSON.stringify(task)) }
  }
  if ('task' in parsed && !('tasks' in parsed)) {
    const { task, ...head } = parsed
    return { head, tasks: [JSON.stringify(task)] }
  }
  return { head: parsed, tasks: undefined }
}
