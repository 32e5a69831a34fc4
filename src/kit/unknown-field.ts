import { nearestName } from './nearest-name.ts'

/** An error text for the first unknown field, with the name that was probably meant; undefined if all fields are known. */
export function unknownField(fields: object, known: readonly string[], path = ''): string | undefined {
  const name = Object.keys(fields).find((field) => !known.includes(field))
  if (name === undefined) return undefined
  const near = nearestName(name, known)
  const meant = near === undefined ? `there are ${known.join(', ')}` : `did you mean \`${near}\`?`
  return `\`${path}${name}\` is not known; ${meant}`
}
