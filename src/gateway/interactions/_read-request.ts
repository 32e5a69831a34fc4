import { parseBody, type DialectRequest, type SaidBefore, type ServerDialect } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { isJsonObject, type ApiName, type Json, type Message } from '../../schema/index.ts'
import { unsaidIn } from './_unsaid.ts'
import type { GatewayModel, GatewayModels, HostedTools } from '../gateway-models.ts'
import { labelsUnsaidIn } from './_sampling-in.ts'

/** How many names an error lists at most. */
const maxNames = 16

/** Reads a client's body as its API says, for the model that it names. Throws `model_rejected` for a body that is not valid. */
export function readRequest(
  dialect: Pick<ServerDialect, 'api' | 'read'>,
  text: string,
  { models, ...before }: SaidBefore & { readonly models?: Pick<GatewayModels, 'known'> } = {},
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
  const { model: name } = body
  const model = typeof name === 'string' ? models?.known(name) : undefined
  return dialect.read(body, { ...before, backendApi: model?.api })
}

/** Refuses, by name, what the model's API cannot say, if the model would be asked something else without it. */
export function refuseUntranslatable(
  request: DialectRequest,
  model: GatewayModel,
  { api, hostedTools }: { readonly api: ApiName; readonly hostedTools: HostedTools },
): void {
  if (model.api === api) return
  const { untranslatable, hosted = [] } = request
  const refusedTools = hostedTools === 'refuse' ? hosted : []
  refuse([...untranslatable, ...refusedTools, ...unsaidIn(model.api, request)], model, api)
}

/** The names of what was left out of a translated request: see `refuseUntranslatable`. */
export function leftOutOf({ dropped = [], hosted = [], sampling }: DialectRequest, model: GatewayModel): string[] {
  return [...dropped, ...hosted, ...labelsUnsaidIn(model.api, sampling)]
}

/** Like `refuseUntranslatable`, for earlier messages, if a request only names the reply that it continues. */
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

/** A field of all SGLang's APIs: the prompt continues one that the server keeps. */
const engineSession = 'session_params'

/** Refuses references to content that only the provider has, because a record must hold all that was said. */
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
