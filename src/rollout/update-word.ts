import type { Update } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import { isJsonObject, type Message } from '../schema/index.ts'
import { isMessageList } from './request-problem.ts'

const wordNames: Readonly<Record<keyof Exclude<Update, void>, true>> = { messages: true, end: true }

/** Checks what `update` returned: Node strips its types, and a misspelt `end` would not end anything. Throws `agent_failed`. */
export function updateWord(said: unknown): Update {
  if (said === undefined || said === null) return undefined
  if (!isJsonObject(said)) {
    // `false` too: it may come of `isFound && { end: true }`, and it may be meant to end the rollout.
    const found = typeof said === 'boolean' ? said : `a value of type ${typeof said}`
    throw wrong(
      `it must return nothing or { messages, end }, not ${found}: { end: true } ends the rollout, { messages } lets it go on, and nothing lets it go on if the reply had tool calls`,
    )
  }
  const unknown = unknownField(said, Object.keys(wordNames))
  if (unknown !== undefined) throw wrong(unknown)
  if (said['messages'] !== undefined) requireMessages('update', said['messages'])
  return said
}

/** Checks that an environment's function returned a list of objects as messages. Throws `agent_failed`. */
export function requireMessages(hook: string, given: unknown): asserts given is readonly Message[] {
  if (isMessageList(given)) return
  const found = Array.isArray(given) ? 'a list of something else' : `a value of type ${typeof given}`
  throw new MillraceError('agent_failed', `${hook}: messages must be a list of messages, not ${found}`)
}

function wrong(what: string): MillraceError {
  return new MillraceError('agent_failed', `update: ${what}`)
}
