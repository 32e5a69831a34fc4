import type { DialectRequest } from '../../dialects/index.ts'
import { isJsonObject, type ApiName, type Json, type Sampling } from '../../schema/index.ts'

/** Fields of OpenAI's APIs that label a request and do not change its reply. */
const labels: ReadonlySet<string> = new Set([
  'user',
  'safety_identifier',
  'metadata',
  'prompt_cache_key',
  'prompt_cache_retention',
  'service_tier',
])

/** Fields of OpenAI's APIs that Messages has no words for, each with a test for values that change nothing. */
const wishes: ReadonlyMap<string, (value: Json) => boolean> = new Map([
  ['verbosity', (value) => value === 'medium'],
  ['presence_penalty', (value) => value === 0],
  ['frequency_penalty', (value) => value === 0],
  ['logit_bias', (value) => isJsonObject(value) && Object.keys(value).length === 0],
])

/** The client's names of the fields it set that Messages has no words for. */
export function wishesUnsaidInMessages({ sampling: { extra = {} }, body }: DialectRequest): string[] {
  const names: string[] = []
  for (const [name, asksNothing] of wishes) {
    const value = extra[name]
    if (value === undefined || value === null || asksNothing(value)) continue
    names.push(name in body ? name : `text.${name}`)
  }
  return names
}

/** The labels of a request that the model's API has no words for. The user, too, is one of them if Messages gets another. */
export function labelsUnsaidIn(api: ApiName, { extra = {} }: Sampling): string[] {
  if (api !== 'messages') return []
  const user = 'user' in extra ? 'user' : 'safety_identifier'
  return Object.keys(extra).filter((name) => labels.has(name) && name !== user)
}

/**
 * A client's sampling in the words of the model's API. Of the labels, Messages knows only the user, and its servers refuse
 * fields that they do not know. Fields that none of the APIs knows are passed on as they are.
 */
export function samplingIn(api: ApiName, sampling: Sampling): Sampling {
  const { extra, ...rest } = sampling
  if (api !== 'messages' || !extra) return sampling
  const user = extra['user'] ?? extra['safety_identifier']
  const others = Object.entries(extra).filter(([name]) => !labels.has(name) && !wishes.has(name))
  const own = { ...Object.fromEntries(others), ...(typeof user === 'string' && { metadata: { user_id: user } }) }
  return Object.keys(own).length > 0 ? { ...rest, extra: own } : rest
}
