import { MillraceError } from '../../errors/index.ts'
import { lostNumber, pathText } from '../../kit/index.ts'
import type { JsonSchema } from '../../tools/index.ts'
import { usageError } from '../command-line/flag-value.ts'

/** The arguments given to `tools call`: one JSON object, or `--arg name=value` several times, or nothing. */
export interface GivenArguments {
  readonly json: string | undefined
  readonly pairs: readonly string[]
}

/** The arguments of a call. The tool's own schema decides whether a value is text or JSON. */
export function callArguments({ json, pairs }: GivenArguments, schema: JsonSchema): Record<string, unknown> {
  if (json === undefined) return Object.fromEntries(pairs.map((pair) => readPair(pair, schema)))
  if (pairs.length > 0) throw usageError('give the arguments as one JSON object or with --arg, not both')
  const value = readJson(json)
  refuseLoss(json, value)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value }
  throw usageError(`the arguments must be a JSON object, as in '{"name": "value"}'`)
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    const { rawMessage } = MillraceError.from(cause, 'internal')
    throw new MillraceError('usage', `the arguments are not JSON: ${rawMessage}; quote them for the shell with '…'`, {
      cause,
    })
  }
}

function readPair(pair: string, schema: JsonSchema): [name: string, value: unknown] {
  const equals = pair.indexOf('=')
  if (equals < 1) throw usageError(`--arg ${pair} lacks a name or a value: --arg <name>=<value>`)
  const name = pair.slice(0, equals)
  const text = pair.slice(equals + 1)
  if (wantsText(schema, name)) return [name, text]
  const value = looseValue(text)
  refuseLoss(text, value, [name])
  return [name, value]
}

/** Refuses a number that would reach the tool as another one, as a rollout does. */
function refuseLoss(text: string, value: unknown, before: readonly string[] = []): void {
  const lost = lostNumber(text, value)
  if (!lost) return
  const path = pathText([...before, ...lost.path])
  throw usageError(
    `${path}: the number ${lost.source} cannot be passed on exactly; send it as a string if the tool takes one`,
  )
}

/** Whether the schema wants text here: then `5` stays text, as in a postcode. */
function wantsText(schema: JsonSchema, name: string): boolean {
  const { properties } = schema
  if (typeof properties !== 'object' || properties === null) return false
  const property: unknown = Object.entries(properties).find(([key]) => key === name)?.[1]
  return typeof property === 'object' && property !== null && 'type' in property && property.type === 'string'
}

function looseValue(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
