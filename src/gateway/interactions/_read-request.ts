import { parseBody, type DialectRequest, type SaidBefore, type ServerDialect } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { isJsonObject, type ApiName, type Json, type Message } from '../../schema/index.ts'
import { unsaidIn } from './_unsaid.ts'
import type { GatewayModel } from '../gateway-models.ts'

/** A few are enough to refuse a request with. */
const maxNames = 16

/** A client's body, read as its API says. Throws `model_rejected` for one that is not valid. */
export function readRequest(
  dialect: Pick<ServerDialect, 'api' | 'read'>,
  text: string,
  before?: SaidBefore,
): DialectRequest {
  let body: Json
  try {
    body = parseBody(dialect.api, text)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new MillraceError('model_rejected', `the body is no JSON: ${why}`, { data: { status: 400 }, cause: error })
  }
  if (!isJsonObject(body)) {
    throw new MillraceError('model_rejected', 'the body must be a JSON object', { data: { status: 400 } })
  }
  return dialect.read(body, before)
}

/** What the model's API cannot say is refused by name, never left out silently. */
export function refuseUntranslatable(request: DialectRequest, model: GatewayModel, api: ApiName): void {
  if (model.api === api) return
  refuse([...request.untranslatable, ...unsaidIn(model.api, request)], model, api)
}

/** The same for what was said before, where a request only names the reply that it goes on from. */
export function refuseUntranslatableEarlier(earlier: readonly Message[], model: GatewayModel, api: ApiName): void {
  if (model.api === api) return
  const lost = new Set<string>()
  for (const message of earlier) {
    const { content } = message
    const others = message.role === 'assistant' ? message.others : typeof content === 'string' ? undefined : content
    for (const part of others ?? []) if (part.type === 'other') lost.add(`${kindOf(part.value)} said before`)
  }
  refuse([...lost], model, api)
}

/** SGLang's, in each of its APIs: the prompt goes on from one that it keeps. */
const engineSession = 'session_params'

/** What is recorded must be all that was said: a part of it that only the provider has is refused by name, whoever could answer it. */
export function refuseHeld({ held = [], body }: DialectRequest): void {
  const names = body[engineSession] ? [...held, engineSession] : held
  const [param] = names
  if (param === undefined) return
  const message = `a session records whole conversations, and only the provider has what these stand for: ${names.join(', ')}. Send what was said instead, or ask without a session.`
  throw new MillraceError('model_rejected', message, { data: { status: 400, param } })
}

function kindOf(value: Json): string {
  const type = isJsonObject(value) ? value['type'] : undefined
  return typeof type === 'string' ? type.slice(0, 80) : 'what only one API knows,'
}

function refuse(lost: readonly string[], model: GatewayModel, api: ApiName): void {
  const [param] = lost
  if (param === undefined) return
  const names = lost.slice(0, maxNames).join(', ')
  const message = `model ${model.name} is asked in ${model.api}, which has no word for: ${names}. Leave it out, or ask a model that is served in ${api}.`
  throw new MillraceError('model_rejected', message, { data: { status: 400, param } })
}
