import { commonLength, pathText } from '../../kit/index.ts'

/** Values longer than this are not shown whole: two of them must fit into one row of a table. */
const maxWholeChars = 40
/** How many characters of a value are shown, and how many of them before the first one that differs. */
const maxShownChars = 120
const charsBefore = 8

type Pair = readonly [recorded: string | null, replayed: string | null]

/** Two values in short: whole, or where they are long, the first of their fields that differs, with the path to it. */
export function shownDifference(recorded: unknown, replayed: unknown): Pair {
  const path: string[] = []
  let pair = [recorded, replayed] as const
  while (pair.some((value) => (sortedJson(value)?.length ?? 0) > maxWholeChars)) {
    const field = differingField(...pair)
    if (field === undefined) break
    path.push(field)
    pair = [fieldOf(pair[0], field), fieldOf(pair[1], field)]
  }
  const [one, other] = shownTexts(sortedJson(pair[0]), sortedJson(pair[1]))
  if (path.length === 0) return [one, other]
  const place = pathText(path)
  return [`${place}: ${one ?? '–'}`, `${place}: ${other ?? '–'}`]
}

/** Two texts in short: long ones from where they differ on, since they may begin alike. */
export function shownTexts(recorded: string | null, replayed: string | null): Pair {
  if (Math.max(recorded?.length ?? 0, replayed?.length ?? 0) <= maxWholeChars) return [recorded, replayed]
  const start = Math.max(0, commonLength(recorded ?? '', replayed ?? '') - charsBefore)
  const shown = (text: string): string => {
    const rest = (start > 0 ? '…' : '') + text.slice(start)
    return rest.length > maxShownChars ? `${rest.slice(0, maxShownChars - 1)}…` : rest
  }
  return [recorded === null ? null : shown(recorded), replayed === null ? null : shown(replayed)]
}

/** JSON with sorted keys: asynchronous rewards may end in any order. */
export function sortedJson(value: unknown): string | null {
  if (value === undefined) return null
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  )
}

function differingField(one: unknown, other: unknown): string | undefined {
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return undefined
  const fields = new Set([...Object.keys(one), ...Object.keys(other)])
  return fields.values().find((field) => sortedJson(fieldOf(one, field)) !== sortedJson(fieldOf(other, field)))
}

function fieldOf(value: unknown, field: string): unknown {
  return (value as Readonly<Record<string, unknown>>)[field]
}
