import type { DialectError, DialectRequest, ServerDialect, WireEvent } from '../dialects/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { ClientApi, JsonObject } from '../schema/index.ts'
import { ApiQuestion } from './_api-question.ts'
import type { Door, Question } from './_door.ts'
import type { TokenFields } from './_token-fields.ts'

/** The door of one of the three APIs, with the token fields of the imitated backend. */
export class ApiDoor implements Door {
  readonly #dialect: ServerDialect
  readonly #fields: TokenFields

  constructor(dialect: ServerDialect, fields: TokenFields) {
    this.#dialect = dialect
    this.#fields = fields
  }

  get api(): ClientApi {
    return this.#dialect.api
  }

  read(body: JsonObject): Question {
    const asked = readWhole(this.#dialect, body)
    const refusal = this.api === 'chat' ? this.#fields.refusal?.(asked) : undefined
    if (refusal) {
      throw new MillraceError('model_rejected', refusal.message, { data: { status: 400, param: refusal.param } })
    }
    return new ApiQuestion(this.#dialect, this.#fields, asked)
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
