/** Joins names as in a sentence: `GET`, `GET and POST`, `DELETE, GET and POST`. */
export function andList(names: readonly string[]): string {
  const last = names.at(-1) ?? ''
  return names.length < 2 ? last : `${names.slice(0, -1).join(', ')} and ${last}`
}
