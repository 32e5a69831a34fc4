import { z } from 'zod'
import type { ContentPart, Message } from '../../schema/index.ts'
import { checkOptions, wholeNumber } from '../define/check-options.ts'
import type { ContextPolicy } from '../define/context.ts'

export interface KeepToolResultsOptions {
  /** The text in place of a result that is left out. */
  readonly stub?: string
  /** How many results are left out at a time; if not given, as many as are kept. */
  readonly every?: number
}

const standardStub = '[This result was left out to save room. Call the tool again if you need it.]'

/**
 * Sends the last `count` tool results in full and a stub for the others; all calls stay. Results are left out `every` at a
 * time, so up to `count + every - 1` are in full. In between the prompt only grows at its end, and the server's prefix cache
 * stays valid. With `every: 1` the cache would be lost from that place on after every result.
 */
export function keepToolResults(count: number, options: KeepToolResultsOptions = {}): ContextPolicy {
  const shape = { count: wholeNumber(0), stub: z.string().optional(), every: wholeNumber(1).optional() }
  checkOptions('keepToolResults()', shape, { count, ...options })
  const { stub = standardStub, every = Math.max(1, count) } = options
  // The same copy is sent turn after turn, so that its JSON is made once.
  const copies = new WeakMap<Message, { readonly leftOut: number; readonly copy: Message }>()
  return ({ messages, isToolResult }) => {
    const sizes = messages.map((message) => (isToolResult(message) ? resultsIn(message) : 0))
    const surplus = sizes.reduce((sum, size) => sum + size, 0) - count
    let left = Math.floor(Math.max(0, surplus) / every) * every
    if (left === 0) return messages
    return messages.map((message, index) => {
      const leftOut = Math.min(left, sizes[index] ?? 0)
      if (leftOut === 0) return message
      left -= leftOut
      const known = copies.get(message)
      if (known?.leftOut === leftOut) return known.copy
      const copy = withoutResults(message, leftOut, stub)
      copies.set(message, { leftOut, copy })
      return copy
    })
  }
}

/** Results of calls in text come as one message, with a text for each and its images after it. */
function resultsIn(message: Message): number {
  if (message.role !== 'user' || typeof message.content === 'string') return 1
  return message.content.filter(({ type }) => type === 'text').length
}

function withoutResults(message: Message, count: number, stub: string): Message {
  if (message.role !== 'user' && message.role !== 'tool') return message
  const { content: given } = message
  // Replacing a result that is shorter than its stub would save nothing.
  if (typeof given === 'string' && given.length <= stub.length) return message
  if (typeof given === 'string' || message.role === 'tool') return { ...message, content: stub }
  let seen = 0
  const content = given.flatMap((part): readonly ContentPart[] => {
    if (part.type === 'text') seen += 1
    if (seen > count) return [part]
    return part.type === 'text' ? [{ type: 'text', text: part.text.length <= stub.length ? part.text : stub }] : []
  })
  return { ...message, content }
}
