import type { ValidationIssue } from '../schema/index.ts'

/** More would hide what is missing. */
const maxNamed = 12

/** What else people put between columns, as it is written in code. */
const delimiters = { ';': ';', '\t': String.raw`\t` }

/**
 * What to say of a row of a table whose problem is that the table has no such column: as the problem of a value it would be
 * looked for in the row. Undefined if the columns are all there.
 */
export function missingColumns(row: unknown, issues: readonly ValidationIssue[]): string | undefined {
  if (typeof row !== 'object' || row === null) return undefined
  const missing = new Set(issues.map(columnOf).filter((name) => name !== undefined && !Object.hasOwn(row, name)))
  if (missing.size === 0) return undefined
  const columns = Object.keys(row).filter((name) => name !== '')
  return `there is no ${named([...missing])} among the columns ${named(columns)}${delimiterHint(columns)}`
}

function columnOf({ path }: ValidationIssue): string | undefined {
  const step = path?.[0]
  const key = typeof step === 'object' ? step.key : step
  return typeof key === 'string' ? key : undefined
}

function named(names: readonly unknown[]): string {
  const shown = names.slice(0, maxNamed).map((name) => JSON.stringify(name))
  return names.length > maxNamed ? `${shown.join(', ')} and ${names.length - maxNamed} more` : shown.join(', ')
}

function delimiterHint([column = '', ...others]: readonly string[]): string {
  const found = Object.entries(delimiters).find(([delimiter]) => column.includes(delimiter))
  return others.length === 0 && found
    ? `; if that is more than one column, write csv(path, { delimiter: '${found[1]}' })`
    : ''
}
