import { parseBody, type DialectRequest, type SaidBefore, type ServerDialect } from '../dialects/index.ts'
import { MillraceError } from '../errors/index.ts'
import { isJsonObject, type ApiName, type Json } from '../schema/index.ts'
import { unsaidIn } from './_unsaid.ts'
import type { GatewayModel } from './gateway-models.ts'

/** A client's body, read as its API says. Throws `model_rejected` for one that is not valid. */
export function readRequest(dialect: ServerDialect, text: string, before?: SaidBefore): DialectRequest {
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
  const lost = [...request.untranslatable, ...unsaidIn(model.api, request)]
  const [param] = lost
  if (param === undefined) return
  const names = lost.join(', ')
  const message = `model ${model.name} is asked in ${model.api}, which has no word for: ${names}. Leave it out, or ask a model that is served in ${api}.`
  throw new MillraceError('model_rejected', message, { data: { status: 400, param } })
}
