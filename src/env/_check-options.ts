import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'

/** Node leaves out the types of a module, so nobody else would say that an option is misspelt. */
export function checkOptions(of: string, options: object, known: Readonly<Record<string, true>>): void {
  const unknown = unknownField(options, Object.keys(known))
  if (unknown !== undefined) throw new MillraceError('env_invalid', `an option of ${of}: ${unknown}`)
}
