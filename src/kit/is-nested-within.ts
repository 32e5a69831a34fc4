/** Whether no part of a JSON value lies deeper than this many arrays and objects. */
export function isNestedWithin(levels: number, value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true
  if (levels === 0) return false
  for (const inner of Object.values(value)) if (!isNestedWithin(levels - 1, inner)) return false
  return true
}
