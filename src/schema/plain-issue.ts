/** Of a value that none of several schemas takes: the schema says no more. */
export const unfitting = 'it fits none of what is allowed here'

/** Zod's own messages, and words that people and models understand better. An author's own messages are left as they are. */
const rules: readonly (readonly [pattern: RegExp, plain: string])[] = [
  [/^Invalid input: expected int, received number$/, 'expected a whole number'],
  [/^Invalid input: expected (.+), received undefined$/, 'missing; expected $1'],
  [/^Invalid input: expected (.+), received (.+)$/, 'expected $1, got $2'],
  [/^Invalid (?:input|option|string|number): (.+)$/, '$1'],
  [/^Invalid input$/, unfitting],
  [/^Invalid discriminator value\. Expected (.+)$/, 'expected $1'],
  [/^Too small: expected (?:string|array) to have >=1 \w+$/, 'must not be empty'],
  [/^Too small: (.+ )>=(.+)$/, '$1at least $2'],
  [/^Too small: (.+ )>(.+)$/, '$1more than $2'],
  [/^Too big: (.+ )<=(.+)$/, '$1at most $2'],
  [/^Too big: (.+ )<(.+)$/, '$1less than $2'],
  [/^Unrecognized keys?: (.+)$/, 'unknown $1; leave it out'],
]

/** Zod's name for an object whose fields may have any name. */
const recordWanted = /^Invalid input: expected record,/

export function plainIssue(message: string): string {
  const said = message.replace(recordWanted, 'Invalid input: expected object,')
  for (const [pattern, plain] of rules) if (pattern.test(said)) return said.replace(pattern, plain)
  return said
}
