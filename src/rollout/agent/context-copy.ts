import type { ContextPolicy, ContextView } from '../../env/index.ts'
import { commonLength } from '../../kit/index.ts'
import type { Message } from '../../schema/index.ts'
import { agentFault } from '../result/outcome.ts'
import { requireContext } from './checks.ts'

export const contextEvent = 'context'

/** Recorded messages by their numbers, from the first to the last of a stretch; or a message that was made for the copy. */
type SentItem = readonly [number, number] | Message

/** The messages sent from a turn on: `same` of the copy expected then, then `sent`, then whatever is recorded. */
export interface ContextDelta {
  readonly turn: number
  /** How many messages are the same as in the expected copy: the last one sent, plus the messages recorded since. */
  readonly same: number
  readonly sent: readonly SentItem[]
}

/** What an agent's turns are sent instead of the whole conversation; differences to the expected are recorded. */
export class ContextCopy {
  readonly #policy: ContextPolicy
  readonly #record: (copy: ContextDelta) => void
  #sent: readonly Message[] = []
  #length = 0

  constructor(policy: ContextPolicy, record: (copy: ContextDelta) => void) {
    this.#policy = policy
    this.#record = record
  }

  async next(view: ContextView, turn: number): Promise<readonly Message[]> {
    const { messages } = view
    // Copied, because a policy may return the conversation itself, which grows.
    const sent = [...(await this.#chosen(view))]
    const expected = [...this.#sent, ...messages.slice(this.#length)]
    this.#sent = sent
    this.#length = messages.length
    const same = commonLength(sent, expected)
    if (same < sent.length || same < expected.length) {
      this.#record({ turn, same, sent: itemsOf(sent.slice(same), messages) })
    }
    return sent
  }

  async #chosen(view: ContextView): Promise<readonly Message[]> {
    const chosen = await Promise.try(this.#policy, view).catch((thrown: unknown) => {
      throw agentFault('contextPolicy', thrown)
    })
    requireContext(chosen)
    return chosen
  }
}

function itemsOf(sent: readonly Message[], messages: readonly Message[]): SentItem[] {
  const numbers = new Map(messages.map((message, index) => [message, index]))
  const items: SentItem[] = []
  for (const message of sent) {
    const number = numbers.get(message)
    const last = items.at(-1)
    if (number === undefined) items.push(message)
    else if (isStretch(last) && last[1] === number - 1) items[items.length - 1] = [last[0], number]
    else items.push([number, number])
  }
  return items
}

function isStretch(item: SentItem | undefined): item is readonly [number, number] {
  return Array.isArray(item)
}
