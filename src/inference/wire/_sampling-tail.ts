import { MillraceError } from '../../errors/index.ts'
import type { JsonObject, Sampling } from '../../schema/index.ts'

export interface SamplingTail {
  /** The fields for what the sampling asks for. */
  readonly asked: JsonObject
  /** Fields that only one backend knows; they win over `asked`. */
  readonly extra: Sampling['extra']
  /** Fields that tokens, usage and the reading of the reply depend on: `extra` cannot override them. */
  readonly fixed?: JsonObject
  /** Fields that stand elsewhere in the body, or must not be in it. */
  readonly reserved: readonly string[]
}

/** The end of a request body. Begins with a comma if not empty. */
export function samplingTail({ asked, extra, fixed, reserved }: SamplingTail): string {
  for (const key of reserved) refuseInExtra(extra, key)
  return fieldsJson({ ...asked, ...extra, ...fixed })
}

/** Fields at the end of a body. Begins with a comma if there are any. */
export function fieldsJson(fields: JsonObject): string {
  const json = JSON.stringify(fields)
  return json === '{}' ? '' : `,${json.slice(1, -1)}`
}

/** One more field at the end of a body. */
export function bodyField(name: string, json: string, extra: Sampling['extra']): string {
  refuseInExtra(extra, name)
  return `,"${name}":${json}`
}

/**
 * Throws if `extra` sets a field that the body has already: of two fields with one name, each server takes the one it likes.
 */
export function refuseInExtra(extra: Sampling['extra'], key: string): void {
  if (!extra || !Object.hasOwn(extra, key)) return
  const message = `sampling.extra cannot set "${key}": Millrace writes that itself. Remove it.`
  throw new MillraceError('config_invalid', message, { data: { param: key } })
}
