import { MillraceError } from '../../errors/index.ts'
import type { OtherPart } from '../../schema/index.ts'
import { isObject } from './foreign-json.ts'
import type { Source } from './source.ts'

/** The API that a request is written in, and the server that it goes to. */
export interface Wording {
  readonly api: 'Chat Completions' | 'Responses' | 'Messages'
  readonly source: Source
}

/** The error for a request that its API has no words for. */
export function unsayable({ api, source }: Wording, what: string, param: string): MillraceError {
  const step = 'Leave it out, or use a model that is asked in another API.'
  return new MillraceError(
    'model_rejected',
    `${what} cannot be said in the ${api} API, in which model ${source.model} is asked. ${step}`,
    { data: { status: 400, param } },
  )
}

/** The error for a part that only another API knows. */
export function foreignPart(wording: Wording, { api, value }: OtherPart): MillraceError {
  return unsayable(wording, `a part of the ${api} API (${nameOf(value)})`, 'messages')
}

function nameOf(value: unknown): string {
  return isObject(value) && 'type' in value && typeof value.type === 'string' ? value.type : 'without a type'
}
