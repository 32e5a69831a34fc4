import { type ApiName, isJsonList, isJsonObject, type Json, type JsonObject } from '../../../src/schema/index.ts'
import type { Received } from '../gateway/api-clients.ts'

/**
 * A reply as a client may send it back: it means the same, and is spelled otherwise. Reasoning is left out, JSON has other spaces and
 * another order, text comes in parts, names of items are missing.
 */
export function respelled(received: Received, api: ApiName, random: () => number): Received {
  return { ...received, items: respellers[api](received.items, random) }
}

type Respeller = (items: readonly Json[], random: () => number) => readonly Json[]

const respellers: Readonly<Record<ApiName, Respeller>> = {
  chat: (items, random) => items.filter(isJsonObject).map((item) => chatMessage(item, random)),
  responses: (items, random) => items.filter(isJsonObject).flatMap((item) => responsesItem(item, random)),
  messages: (items, random) =>
    items.filter(isJsonObject).map(({ role, content }) => {
      const blocks = (isJsonList(content) ? content : []).filter(isJsonObject)
      return { role: role ?? null, content: blocks.flatMap((block) => messagesBlock(block, random)) }
    }),
}

function chatMessage({ reasoning_content: reasoning, ...message }: JsonObject, random: () => number): JsonObject {
  const { content = null, tool_calls: calls } = message
  return {
    ...message,
    content: inParts(content, 'text', random),
    ...(reasoning !== undefined && random() < 0.5 && { reasoning_content: reasoning }),
    ...(isJsonList(calls) && { tool_calls: calls.filter(isJsonObject).map((call) => chatCall(call, random)) }),
  }
}

function chatCall({ function: called, ...call }: JsonObject, random: () => number): JsonObject {
  return { ...call, function: isJsonObject(called) ? withOtherArguments(called, random) : null }
}

function responsesItem(item: JsonObject, random: () => number): JsonObject[] {
  const { id, status: _status, ...rest } = item
  if (item['type'] === 'reasoning') return random() < 0.5 ? [item] : []
  const named = random() < 0.5 && id !== undefined ? { ...rest, id } : rest
  if (item['type'] === 'function_call') return [withOtherArguments(named, random)]
  const [part] = isJsonList(item['content']) ? item['content'] : []
  const text = isJsonObject(part) ? part['text'] : undefined
  return [typeof text === 'string' && random() < 0.5 ? { role: 'assistant', content: text } : named]
}

function messagesBlock(block: JsonObject, random: () => number): Json[] {
  if (block['type'] === 'thinking') return random() < 0.5 ? [block] : []
  if (block['type'] === 'text') return [inParts(block['text'] ?? '', 'text', random)].flat()
  return [{ ...block, input: reordered(block['input'] ?? {}, random) }]
}

/** A text as it is, or in two parts. */
function inParts(text: Json, type: string, random: () => number): Json {
  if (typeof text !== 'string' || text.length < 2) return text
  const middle = Math.floor(text.length / 2)
  // Not within a surrogate pair.
  const at = /[\udc00-\udfff]/.test(text[middle] ?? '') ? middle + 1 : middle
  const parts = [text.slice(0, at), text.slice(at)].filter((part) => part.trim() !== '')
  if (parts.length < 2 || random() < 0.5) return [{ type, text }]
  return parts.map((part) => ({ type, text: part }))
}

function withOtherArguments(called: JsonObject, random: () => number): JsonObject {
  const { arguments: written } = called
  if (typeof written !== 'string') return called
  try {
    const value = reordered(JSON.parse(written) as Json, random)
    return { ...called, arguments: JSON.stringify(value, undefined, Math.floor(random() * 3)) }
  } catch {
    return called
  }
}

function reordered(value: Json, random: () => number): Json {
  if (!isJsonObject(value)) return value
  const entries = Object.entries(value)
  return Object.fromEntries(random() < 0.5 ? entries.toReversed() : entries)
}
