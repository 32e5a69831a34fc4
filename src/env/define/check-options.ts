import { inspect } from 'node:util'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { closedObject, describeIssues, safeParse } from '../../schema/index.ts'

/** Throws `env_invalid`: Node strips the types of a module, so nothing else would report a misspelt option. */
export function checkOptions<Options extends object>(
  of: string,
  shape: Readonly<Record<keyof Options, z.ZodType>>,
  options: Options,
): void {
  const checked = safeParse(closedObject(shape), options)
  if (!checked.success) {
    throw new MillraceError('env_invalid', `the options of ${of}: ${describeIssues(checked.error.issues, options)}`)
  }
}

/** A value that must be what `expected` says. The message has the value, which is given as it stands in the author's code. */
export function mustBe(expected: string): { readonly error: (issue: { readonly input?: unknown }) => string } {
  return { error: ({ input }) => `must be ${expected}, not ${shortValue(input)}` }
}

export function wholeNumber(least: number): z.ZodType<number> {
  return z.int(mustBe(`a whole number from ${least} on`)).min(least, mustBe(`a whole number from ${least} on`))
}

/** A time limit; Infinity is allowed. */
export const timeoutSchema = z.custom<number>(
  (value) => typeof value === 'number' && value > 0,
  mustBe('a number above 0'),
)

export function isFunction(value: unknown): boolean {
  return typeof value === 'function'
}

/** What stands in place of something else: itself if that is short, else what kind of thing it is. */
export function shortValue(value: unknown): string {
  if (value === undefined) return 'missing'
  if (Array.isArray(value)) return 'an array'
  const isLong = (typeof value === 'object' && value !== null) || isFunction(value)
  return isLong ? `a value of type ${typeof value}` : inspect(value, { maxStringLength: 60 })
}
