type Schema = Readonly<Record<string, unknown>>

/** One of the first few numbers from 1 upwards that the bounds allow; `luck` in [0, 1) says which. */
export function boundedNumber(schema: Schema, luck: number): number {
  const step = typeof schema['multipleOf'] === 'number' && schema['multipleOf'] > 0 ? schema['multipleOf'] : 1
  const least = Math.ceil(lowest(schema, step) / step)
  const most = Math.floor(highest(schema, step) / step)
  // From 1 upwards if that is allowed: the bounds of "any integer" are no sensible values.
  const low = Math.max(least, Math.min(1, most))
  const high = Math.max(low, Math.min(most, low + 9))
  const number = (low + Math.floor(luck * (high - low + 1))) * step
  return fits(number, schema) ? number : between(schema)
}

function lowest({ minimum, exclusiveMinimum }: Schema, step: number): number {
  const least = typeof minimum === 'number' ? minimum : Number.NEGATIVE_INFINITY
  if (typeof exclusiveMinimum !== 'number') return least
  return Math.max(least, (Math.floor(exclusiveMinimum / step) + 1) * step)
}

function highest({ maximum, exclusiveMaximum }: Schema, step: number): number {
  const most = typeof maximum === 'number' ? maximum : Number.POSITIVE_INFINITY
  if (typeof exclusiveMaximum !== 'number') return most
  return Math.min(most, (Math.ceil(exclusiveMaximum / step) - 1) * step)
}

function fits(number: number, { minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema): boolean {
  if (typeof minimum === 'number' && number < minimum) return false
  if (typeof maximum === 'number' && number > maximum) return false
  if (typeof exclusiveMinimum === 'number' && number <= exclusiveMinimum) return false
  return !(typeof exclusiveMaximum === 'number' && number >= exclusiveMaximum)
}

/** The middle of the bounds, for when no whole number lies between them. */
function between({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema): number {
  const bounds = [minimum, exclusiveMinimum, maximum, exclusiveMaximum].filter((bound) => typeof bound === 'number')
  return bounds.reduce((sum, bound) => sum + bound, 0) / Math.max(1, bounds.length)
}

const formats: ReadonlyMap<unknown, string> = new Map([
  ['date-time', '2026-01-02T03:04:05Z'],
  ['date', '2026-01-02'],
  ['time', '03:04:05Z'],
  ['email', 'someone@example.org'],
  ['uri', 'https://example.org/'],
  ['uuid', '00000000-0000-4000-8000-000000000000'],
  ['ipv4', '192.0.2.1'],
])

/** A text of a format that clients check; undefined for other formats. */
export function formattedText(format: unknown): string | undefined {
  return formats.get(format)
}
