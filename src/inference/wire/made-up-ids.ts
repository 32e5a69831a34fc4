import type { Message } from '../../schema/index.ts'

const prefix = 'call_'

/** Ids with more digits are not ours. */
const pattern = /^call_(\d{1,15})$/

/**
 * Ids for calls that came without one. They are numbered on from the ids of the conversation, so that none occurs twice.
 * They depend on nothing else: a client may send such a call back without an id, and reading it must give the same id again.
 */
export class MadeUpIds {
  readonly #messages: readonly Message[]
  /** How many of the messages were looked through. None are until an id is needed. */
  #known = 0
  #next = 0

  /** `messages` may grow afterwards. */
  constructor(messages: readonly Message[]) {
    this.#messages = messages
  }

  /** The id of the call at this place, counted from the end of the messages. */
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

/** Whether an id may have been made up here. */
export function isMadeUp(id: string): boolean {
  return pattern.test(id)
}
