/** `attempts 4, now 1`; where both are objects, the members that differ. */
export function describeDifference(path: string, before: unknown, now: unknown): string {
  if (isRecord(before) && isRecord(now)) {
    const keys = new Set([...Object.keys(before), ...Object.keys(now)])
    const changed = [...keys].filter((key) => JSON.stringify(before[key]) !== JSON.stringify(now[key]))
    return changed.map((key) => describeDifference(`${path}.${key}`, before[key], now[key])).join('; ')
  }
  if (Array.isArray(before) && Array.isArray(now) && before.length === 1 && now.length === 1) {
    return describeDifference(path, before[0], now[0])
  }
  return `${path} ${shortened(before)}, now ${shortened(now)}`
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function shortened(value: unknown): string {
  const text = JSON.stringify(value) ?? 'not set'
  return text === 'null' ? 'not set' : text.length > 80 ? `${text.slice(0, 79)}…` : text
}
