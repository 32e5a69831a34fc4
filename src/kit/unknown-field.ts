import { nearestName } from './nearest-name.ts'

/** What is wrong with the first field that is none of the known ones, and which was meant; undefined if all are known. */
export function unknownField(fields: object, known: readonly string[], path = ''): string | undefined {
  const name = Object.keys(fields).find((field) => !known.includes(field))
  if (name === undefined) return undefined
  const near = nearestName(name, known)
  const meant = near === undefined ? `there are ${known.join(', ')}` : `did you mean \`${near}\`?`
  return `\`${path}${name}\` is not known; ${meant}`
}
