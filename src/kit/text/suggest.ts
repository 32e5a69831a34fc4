/** Longer names are not compared: the table below is quadratic in their length. */
const maxComparedLength = 100

export function nearestName(wanted: string, known: Iterable<string>): string | undefined {
  return nearestNames(wanted, known, 1)[0]
}

/** Best first. Close: equal but for case, one the beginning of the other, or at most a third of the letters mistyped. */
export function nearestNames(wanted: string, known: Iterable<string>, count = 3): string[] {
  // Of one letter, a mistake leaves nothing.
  const limit = wanted.length < 2 ? 0 : Math.max(1, Math.floor(wanted.length / 3))
  const lower = wanted.toLowerCase()
  const found: { name: string; distance: number }[] = []
  for (const name of known) {
    const candidate = name.toLowerCase()
    const distance = isBeginning(lower, candidate) ? 0.5 : editDistance(lower, candidate, limit)
    if (distance <= limit) found.push({ name, distance })
  }
  // The sort is stable, so names that are equally close keep the order in which they are known.
  found.sort((left, right) => left.distance - right.distance)
  return found.slice(0, count).map(({ name }) => name)
}

function isBeginning(left: string, right: string): boolean {
  const shorter = Math.min(left.length, right.length)
  return shorter >= 3 && left !== right && (left.startsWith(right) || right.startsWith(left))
}

/** How many letters to insert, delete, replace or swap with their neighbour; `limit + 1` as soon as it is more than `limit`. */
function editDistance(left: string, right: string, limit: number): number {
  if (Math.abs(left.length - right.length) > limit) return limit + 1
  if (left.length > maxComparedLength || right.length > maxComparedLength) return limit + 1
  let beforeLast: number[] = []
  let last = Array.from({ length: right.length + 1 }, (_, column) => column)
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row]
    let best = row
    for (let column = 1; column <= right.length; column += 1) {
      const replaced = (last[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1)
      let distance = Math.min(replaced, (last[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1)
      if (row > 1 && column > 1 && left[row - 1] === right[column - 2] && left[row - 2] === right[column - 1]) {
        distance = Math.min(distance, (beforeLast[column - 2] ?? 0) + 1)
      }
      current.push(distance)
      best = Math.min(best, distance)
    }
    if (best > limit) return limit + 1
    beforeLast = last
    last = current
  }
  return last[right.length] ?? limit + 1
}

/** An error text for the first unknown field, with the name that was probably meant; undefined if all fields are known. */
export function unknownField(fields: object, known: readonly string[], path = ''): string | undefined {
  const name = Object.keys(fields).find((field) => !known.includes(field))
  if (name === undefined) return undefined
  const near = nearestName(name, known)
  const others = known.length === 0 ? 'there are none' : `there are ${known.join(', ')}`
  const meant = near === undefined ? others : `did you mean \`${near}\`?`
  return `\`${path}${name}\` is not known; ${meant}`
}

/** Joins names as in a sentence: `GET`, `GET and POST`, `DELETE, GET and POST`. */
export function andList(names: readonly string[]): string {
  const last = names.at(-1) ?? ''
  return names.length < 2 ? last : `${names.slice(0, -1).join(', ')} and ${last}`
}

/** A path into a value as people write it: `messages[0].content`. Places of a list may be given as text. */
export function pathText(path: readonly PropertyKey[]): string {
  let text = ''
  for (const step of path) {
    const name = String(step)
    if (/^\d+$/.test(name)) text += `[${name}]`
    else text += text === '' ? name : `.${name}`
  }
  return text
}
