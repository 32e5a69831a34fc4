import type { ValidationIssue } from '../schema/index.ts'

/** The most columns that are listed: more would hide the missing ones. */
const maxNamed = 12

/** Other common delimiters, as they are written in code. */
const delimiters = { ';': ';', '\t': String.raw`\t` }

/**
 * The message for a row that fails because the table lacks a column: without it, people would look for the fault in the row.
 * Undefined if no column is missing.
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
