import type { DialectError, DialectRequest, ServerDialect, WireEvent } from '../dialects/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { ClientApi, JsonObject } from '../schema/index.ts'
import { DialectApiRequest } from './_dialect-api-request.ts'
import type { ApiRequest, SimulatedApi } from './_simulated-api.ts'
import type { TokenFieldWriter } from './_token-field-writer.ts'

/** One of the three APIs that have a dialect, with the token fields of the imitated backend. */
export class DialectApi implements SimulatedApi {
  readonly #dialect: ServerDialect
  readonly #fields: TokenFieldWriter

  constructor(dialect: ServerDialect, fields: TokenFieldWriter) {
    this.#dialect = dialect
    this.#fields = fields
  }

  get name(): ClientApi {
    return this.#dialect.api
  }

  read(body: JsonObject): ApiRequest {
    const asked = readWhole(this.#dialect, body)
    if (asked.choices !== undefined) {
      const message = 'n must be 1: send several requests, one for each reply'
      throw new MillraceError('model_rejected', message, { data: { status: 400, param: 'n' } })
    }
    const refusal = this.name === 'chat' ? this.#fields.refusal?.(asked) : undefined
    if (refusal) {
      throw new MillraceError('model_rejected', refusal.message, { data: { status: 400, param: refusal.param } })
    }
    return new DialectApiRequest(this.#dialect, this.#fields, asked)
  }

  error(error: MillraceError): DialectError {
    return this.#dialect.error(error)
  }

  streamError(error: MillraceError): WireEvent {
    return this.#dialect.streamError(error)
  }
}

/** Reads a request; one that builds on an earlier reply is refused, as replies are not kept. */
export function readWhole(dialect: Pick<ServerDialect, 'read'>, body: JsonObject): DialectRequest {
  const asked = dialect.read(body)
  if (asked.previousReplyId === undefined) return asked
  throw new MillraceError('model_rejected', 'replies are not kept; send the whole conversation as input', {
    data: { status: 400, param: 'previous_response_id' },
  })
}
