import { kindOfValue, nearestName, pathText } from '../kit/index.ts'
import { plainIssue, unfitting } from './plain-issue.ts'
import { isJsonObject } from './json.ts'
import type { ValidationIssue } from './standard-schema.ts'

/** How many issues are shown: nobody corrects more at a time. */
const maxIssues = 8
/** How much of a text is quoted: enough to find it again. */
const maxQuotedChars = 60

/** `answers[0].value: expected number, got string` for each issue, joined. With the value that was checked, it says what was found. */
export function describeIssues(issues: readonly ValidationIssue[], given?: unknown): string {
  const shown = issues.slice(0, maxIssues).map((issue) => {
    const path = pathText(pathOf(issue))
    const message = describeIssue(issue, given)
    return path ? `${path}: ${message}` : message
  })
  const more = issues.length - shown.length
  return shown.join('; ') + (more > 0 ? `; and ${more} more` : '')
}

/** One issue, without its place. */
export function describeIssue(issue: ValidationIssue, given?: unknown): string {
  const plain = plainIssue(issue.message)
  return given === undefined ? plain : withFound(plain, given, pathOf(issue))
}

function pathOf({ path = [] }: ValidationIssue): PropertyKey[] {
  return path.map((step) => (typeof step === 'object' ? step.key : step))
}

/** Schemas leave out of these messages what was found. */
function withFound(message: string, given: unknown, path: readonly PropertyKey[]): string {
  const found = valueAt(given, path)
  // What `z.coerce` made of the text.
  if (typeof found === 'string') message = message.replace(/NaN$/, () => quoted(found))
  if (message.startsWith('expected one of ')) {
    return found === undefined ? `missing; ${message}` : `${message}, got ${quoted(found)}${meant(message, found)}`
  }
  if (message !== unfitting) return message
  return found === undefined ? `missing; found ${namesBeside(given, path)}` : `${message}, got ${kindOfValue(found)}`
}

function meant(choices: string, found: unknown): string {
  if (typeof found !== 'string') return ''
  const near = nearestName(
    found,
    Array.from(choices.matchAll(/"([^"]*)"/g), ([, choice = '']) => choice),
  )
  return near === undefined ? '' : ` (did you mean "${near}"?)`
}

function namesBeside(given: unknown, path: readonly PropertyKey[]): string {
  const parent = valueAt(given, path.slice(0, -1))
  const names = isJsonObject(parent) ? Object.keys(parent) : []
  return names.length > 0 ? quotedList(names) : 'nothing'
}

function valueAt(given: unknown, path: readonly PropertyKey[]): unknown {
  let value = given
  for (const step of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return undefined
    value = Reflect.get(value, step)
  }
  return value
}

function quotedList(names: readonly string[]): string {
  const shown = names.slice(0, maxIssues).map(quoted)
  return shown.join(', ') + (names.length > shown.length ? ` and ${names.length - shown.length} more` : '')
}

/** Only values of a list of choices and of numbers are quoted: whatever else there is may be a secret, or long. */
function quoted(value: unknown): string {
  if (typeof value !== 'string') return kindOfValue(value)
  return JSON.stringify(value.length > maxQuotedChars ? `${value.slice(0, maxQuotedChars)}…` : value)
}
