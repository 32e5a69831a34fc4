import { MillraceError } from '../errors/index.ts'
import type { JsonObject, Sampling } from '../schema/index.ts'

/** The end of a request body: what a sampling asks for, then its `extra`, which wins. Begins with a comma if not empty. */
export function samplingTail(fields: JsonObject, extra: Sampling['extra'], reserved: readonly string[]): string {
  for (const key of reserved) {
    if (extra && Object.hasOwn(extra, key)) {
      throw new MillraceError(
        'config_invalid',
        `sampling.extra cannot set "${key}": Millrace writes that itself. Remove it.`,
      )
    }
  }
  const json = JSON.stringify({ ...fields, ...extra })
  return json === '{}' ? '' : `,${json.slice(1, -1)}`
}
