import { chatServer, type ServerDialect } from '../../../apis/index.ts'
import type { JsonObject } from '../../../schema/index.ts'
import { arealError, arealStreamError, type StatusRule } from './wire-errors.ts'

/** The model that a request gets which names none, or one that is not known. */
type NameModel = (name: unknown) => string | undefined

/** What AReaL asks an engine for that is asked for nothing else, so that the log-probabilities are those of the policy itself. */
const policySampling: JsonObject = { temperature: 1, top_p: 1 }

/** Chat Completions as AReaL has it: the server chooses the model and the sampling, and errors have AReaL's shapes. */
export function arealDialect(rule: StatusRule, nameModel: NameModel): ServerDialect {
  return {
    ...chatServer,
    missingFields(body) {
      const model = nameModel(body['model'])
      const missing = Object.entries(policySampling).filter(([name]) => !Object.hasOwn(body, name))
      const fields = Object.fromEntries(missing)
      return model === undefined || model === body['model'] ? fields : { ...fields, model }
    },
    error: (error) => arealError(error, rule),
    streamError: (error) => ({ data: arealStreamError(error, rule) }),
  }
}
