import { hasInexactNumber, parseExactly } from '../kit/index.ts'
import type { Json } from '../schema/index.ts'
import { isJsonObject, isList } from './_json.ts'
import type { ServerDialect } from './server-dialect.ts'

/**
 * The JSON of a client's body. Arguments of calls are objects in Messages, and text wherever they are recorded or sent on,
 * so what a double cannot hold is kept there as it was written. Throws what `JSON.parse` throws.
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
