import type { Message } from '../../schema/index.ts'

const prefix = 'call_'

/** With more digits it is none of ours. */
const pattern = /^call_(\d{1,15})$/

/**
 * Ids for calls that came without one, numbered on from those of the conversation, so that none is there twice. They depend on
 * nothing else: a client that is told of such a call sends it back without an id, too, and read from there it must have the same.
 */
export class MadeUpIds {
  readonly #messages: readonly Message[]
  /** How many of the messages were looked through: only where an id is wanted are there any. */
  #known = 0
  #next = 0

  /** `messages` may grow. */
  constructor(messages: readonly Message[]) {
    this.#messages = messages
  }

  /** For the call at this place of what follows the messages. */
  at(place: number): string {
    for (; this.#known < this.#messages.length; this.#known += 1) this.#note(this.#messages[this.#known])
    return `${prefix}${this.#next + place}`
  }

  #note(message: Message | undefined): void {
    if (message?.role !== 'assistant') return
    for (const { id } of message.tool_calls ?? []) {
      const [, number] = pattern.exec(id) ?? []
      if (number !== undefined) this.#next = Math.max(this.#next, Number(number) + 1)
    }
  }
}

/** Whether an id may be one of these. */
export function isMadeUp(id: string): boolean {
  return pattern.test(id)
}
