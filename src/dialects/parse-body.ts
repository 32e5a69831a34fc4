import { hasInexactNumber, parseExactly } from '../kit/index.ts'
import type { Json } from '../schema/index.ts'
import { isJsonObject, isList } from './_json.ts'
import type { ServerDialect } from './server-dialect.ts'

/**
 * Parses a client's body. Messages has the arguments of calls as objects, but they are recorded and sent on as text, so
 * numbers in them that a double cannot hold are kept as they were written. Throws what `JSON.parse` throws.
 */
export function parseBody(api: ServerDialect['api'], text: string): Json {
  const body = JSON.parse(text) as Json
  if (api !== 'messages' || !isJsonObject(body) || !hasInexactInput(body['messages'])) return body
  const exact = parseExactly(text)
  return isJsonObject(exact) ? { ...body, messages: exact['messages'] } : body
}

function hasInexactInput(turns: Json | undefined): boolean {
  if (!isList(turns)) return false
  for (const turn of turns) {
    const content = isJsonObject(turn) ? turn['content'] : undefined
    if (!isList(content)) continue
    for (const block of content) {
      if (isJsonObject(block) && block['type'] === 'tool_use' && hasInexactNumber(block['input'])) return true
    }
  }
  return false
}
