import { commonLength } from '../kit/index.ts'

/** How much of a value is shown. */
const maxCharacters = 80
/** How much is shown of what two long values have in common, before the first difference. */
const maxCommon = 20

/** `attempts 4, now 1`; where both are objects, or lists of one length, the members that differ. */
export function describeDifference(path: string, before: unknown, now: unknown): string {
  if (isRecord(before) && isRecord(now)) {
    const keys = new Set([...Object.keys(before), ...Object.keys(now)])
    const changed = [...keys].filter((key) => JSON.stringify(before[key]) !== JSON.stringify(now[key]))
    return changed.map((key) => describeDifference(`${path}.${key}`, before[key], now[key])).join('; ')
  }
  if (Array.isArray(before) && Array.isArray(now) && before.length === now.length) {
    const changed = [...before.keys()].filter((index) => JSON.stringify(before[index]) !== JSON.stringify(now[index]))
    return changed.map((index) => describeDifference(`${path}[${index}]`, before[index], now[index])).join('; ')
  }
  const texts = [textOf(before), textOf(now)] as const
  const start = Math.max(0, commonLength(...texts) - maxCommon)
  const isLong = texts.every(({ length }) => length > maxCharacters)
  const [shownBefore, shownNow] = texts.map((text) => shortened(text, isLong ? start : 0))
  return `${path} ${shownBefore}, now ${shownNow}`
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function textOf(value: unknown): string {
  const text = JSON.stringify(value) ?? 'null'
  return text === 'null' ? 'not set' : text
}

function shortened(text: string, start: number): string {
  const end = start + maxCharacters - 1
  return `${start > 0 ? '…' : ''}${text.slice(start, end)}${text.length > end ? '…' : ''}`
}
