import type { DialectRequest } from '../../dialects/index.ts'
import { isJsonObject, type ApiName, type Json, type Sampling } from '../../schema/index.ts'

/** What OpenAI's APIs say about a request, and not about its reply. */
const labels: ReadonlySet<string> = new Set([
  'user',
  'safety_identifier',
  'metadata',
  'prompt_cache_key',
  'prompt_cache_retention',
  'service_tier',
])

/** What they ask of a reply and Messages has no words for, with a test for values that ask for nothing. */
const wishes: ReadonlyMap<string, (value: Json) => boolean> = new Map([
  ['verbosity', (value) => value === 'medium'],
  ['presence_penalty', (value) => value === 0],
  ['frequency_penalty', (value) => value === 0],
  ['logit_bias', (value) => isJsonObject(value) && Object.keys(value).length === 0],
])

/** Names, in the client's words, of what is asked of the reply that Messages has no words for. */
export function wishesUnsaidInMessages({ sampling: { extra = {} }, body }: DialectRequest): string[] {
  const names: string[] = []
  for (const [name, asksNothing] of wishes) {
    const value = extra[name]
    if (value === undefined || value === null || asksNothing(value)) continue
    names.push(name in body ? name : `text.${name}`)
  }
  return names
}

/**
 * A client's sampling as a model of that API is asked for it. Messages knows of all labels only whose request it is; a server
 * refuses a field that it does not know. What none of the APIs knows goes along as it is.
 */
export function samplingIn(api: ApiName, sampling: Sampling): Sampling {
  const { extra, ...rest } = sampling
  if (api !== 'messages' || !extra) return sampling
  const user = extra['user'] ?? extra['safety_identifier']
  const others = Object.entries(extra).filter(([name]) => !labels.has(name) && !wishes.has(name))
  const own = { ...Object.fromEntries(others), ...(typeof user === 'string' && { metadata: { user_id: user } }) }
  return Object.keys(own).length > 0 ? { ...rest, extra: own } : rest
}
