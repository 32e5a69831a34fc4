import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'

/** Throws if an option is unknown. Node strips the types of a module, so nothing else would report a misspelt option. */
export function checkOptions(of: string, options: object, known: Readonly<Record<string, true>>): void {
  const unknown = unknownField(options, Object.keys(known))
  if (unknown !== undefined) throw new MillraceError('env_invalid', `an option of ${of}: ${unknown}`)
}
