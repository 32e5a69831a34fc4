import type { DialectRequest } from '../../dialects/index.ts'
import type { ApiName } from '../../schema/index.ts'
import { wishesUnsaidInMessages } from './_sampling-in.ts'

/**
 * The client's names of what it asks for and the model's API has no word for. Hints are not listed, because a reply without
 * them is still what was asked for: the detail of an image, the mark of a tool's result as an error.
 */
export function unsaidIn(api: ApiName, request: DialectRequest): readonly string[] {
  if (api === 'chat') return []
  const { messages, sampling, responseFormat, body } = request
  const { stop = [], seed } = sampling
  const names: string[] = []
  if (api === 'responses' && stop.length > 0) names.push('stop_sequences' in body ? 'stop_sequences' : 'stop')
  if (seed !== undefined) names.push('seed')
  if (api === 'messages' && responseFormat?.kind === 'json_object') {
    names.push(`${'text' in body ? 'text.format' : 'response_format'} json_object`)
  }
  if (api === 'messages') names.push(...wishesUnsaidInMessages(request))
  const named = messages.findIndex((message) => message.role === 'user' && message.name !== undefined)
  if (named !== -1) names.push(`messages[${named}].name`)
  return names
}
