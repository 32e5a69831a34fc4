import { responsesServer } from '../../../apis/index.ts'
import { MillraceError, ownFaults } from '../../../errors/index.ts'
import {
  depthProblem,
  exactSource,
  isJsonObject,
  type JsonObject,
  parseExactly,
  utf8Problem,
} from '../../../kit/index.ts'
import { describeIssue, type ValidationIssue } from '../../../schema/index.ts'
import { maxJsonDepth } from '../../codec/rollout-json.ts'
import { statusOfError } from '../../http/errors.ts'
import { parseFinite, parsePython } from './python-numbers.ts'

type Fields = Readonly<Record<string, unknown>>

/** One entry of the `detail` of a 422, as FastAPI writes it. */
export interface Refused {
  readonly type: string
  readonly loc: readonly (string | number)[]
  readonly msg: string
  readonly input: unknown
  readonly ctx?: { readonly error: string }
}

/** A request that is refused with 422. It crosses threads as it is. */
export function refusal(...refused: readonly [Refused, ...Refused[]]): MillraceError {
  const described = refused.map(({ loc, msg }) => `${loc.slice(1).join('.') || 'the body'}: ${msg}`)
  return new MillraceError('usage', described.join('; '), { data: { status: 422, detail: JSON.stringify(refused) } })
}

const required = { type: 'missing', msg: 'Field required' } as const

/** A field that the body does not have, or the body itself. */
export function missing(loc: Refused['loc'], input: unknown = null): MillraceError {
  const { type, msg } = required
  return refusal({ type, loc, msg, input })
}

/**
 * The object in a body, with numbers that `JSON.parse` would change kept as their text (`exactSource` has it). A number that is
 * not finite is one beyond doubles. Throws a 422 if there is no object.
 */
export function objectBody(body: Uint8Array): Fields {
  return requireObject(body, parsePython)
}

/** The same for a body that is sent on: a number that is not finite is null. */
export function exactBody(body: Uint8Array): JsonObject {
  return requireObject(body, (bytes) => parseFinite(bytes, parseExactly))
}

/** The same with numbers as JavaScript has them, which is faster by far. */
export function plainBody(body: Uint8Array): JsonObject {
  return requireObject(body, (bytes) => parseFinite(bytes, (text) => JSON.parse(text) as unknown))
}

function requireObject(body: Uint8Array, parse: (body: Uint8Array) => unknown): JsonObject {
  if (body.length === 0) throw missing(['body'])
  requireUtf8(body)
  // Before it is parsed: a parser calls itself for every level.
  const tooDeep = depthProblem(body, maxJsonDepth)
  if (tooDeep !== undefined) throw beginsObject(body) ? new MillraceError('usage', tooDeep) : noObject(null)
  const parsed = parsedBody(body, parse)
  if (isJsonObject(parsed) && exactSource(parsed) === undefined) return parsed
  throw noObject(parsed)
}

const openBrace = 0x7b
const space = 0x20

function beginsObject(body: Uint8Array): boolean {
  return body.find((byte) => byte > space) === openBrace
}

function noObject(input: unknown): MillraceError {
  return refusal({
    type: 'model_attributes_type',
    loc: ['body'],
    msg: 'Input should be a valid dictionary or object to extract fields from',
    input,
  })
}

function parsedBody<Value>(body: Uint8Array, parse: (body: Uint8Array) => Value): Value {
  try {
    return parse(body)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw refusal(invalidJson(rawMessage))
  }
}

export function requireUtf8(body: Uint8Array): void {
  const problem = utf8Problem(body)
  if (problem !== undefined) throw refusal(invalidJson(problem))
}

/** A body that is no JSON, by what the parser says. */
export function invalidJson(error: string): Refused {
  const [, position = '0'] = /position (\d+)/.exec(error) ?? []
  return {
    type: 'json_invalid',
    loc: ['body', Number(position)],
    msg: 'JSON decode error',
    input: {},
    ctx: { error },
  }
}

/** The issues that a schema has with a value as entries of a 422. `loc` is where in the body the value is. */
export function refusalOf(
  issues: readonly ValidationIssue[],
  value: unknown,
  loc: Refused['loc'] = ['body'],
): MillraceError {
  const [first, ...rest] = issues.flatMap((issue) => entriesOf(issue, value, loc))
  return first ? refusal(first, ...rest) : new MillraceError('usage', 'the body does not fit')
}

function entriesOf(issue: ValidationIssue, value: unknown, base: Refused['loc']): Refused[] {
  const path = (issue.path ?? []).map(keyOf)
  const loc = [...base, ...path]
  const input = valueAt(value, path)
  if ('code' in issue && issue.code === 'unrecognized_keys' && 'keys' in issue && Array.isArray(issue.keys)) {
    return issue.keys.map((key: string) => ({
      type: 'extra_forbidden',
      loc: [...loc, key],
      msg: 'Extra inputs are not permitted',
      input: valueAt(input, [key]),
    }))
  }
  if (input === undefined) return [{ ...required, loc, input: valueAt(value, path.slice(0, -1)) ?? null }]
  return [{ type: 'value_error', loc, msg: describeIssue(issue, value), input }]
}

function keyOf(key: PropertyKey | { readonly key: PropertyKey }): string | number {
  const own = typeof key === 'object' ? key.key : key
  return typeof own === 'number' ? own : String(own)
}

function valueAt(value: unknown, path: readonly (string | number)[]): unknown {
  let found = value
  for (const key of path) found = typeof found === 'object' && found !== null ? (found as Fields)[key] : undefined
  return found
}

/** A reply without its session cookie. */
export interface WireReply {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

const notFound: WireReply = jsonReply(404, '{"detail":"Not Found"}')

/** Whatever a route threw, as FastAPI answers it: a 500 is a JSON string, every other status has a `detail`. */
export function errorReply(thrown: unknown): WireReply {
  const status = statusOfError(thrown)
  const error = MillraceError.from(thrown, 'internal')
  const retry = status === 429 || status === 503 ? { 'retry-after': '1' } : undefined
  if (status === 500) return jsonReply(status, JSON.stringify(ownFaults[error.code] ?? error.message))
  const { detail } = error.data
  const text = status === 422 && typeof detail === 'string' ? detail : JSON.stringify(error.rawMessage)
  return jsonReply(status, `{"detail":${text}}`, retry)
}

/** The same with the `error` of OpenAI's API beside the `detail`: a client of that API shows only this. */
export function apiErrorReply(thrown: unknown): WireReply {
  const reply = errorReply(thrown)
  const said = JSON.parse(reply.body) as string | { readonly detail: unknown }
  const detail = typeof said === 'string' ? said : said.detail
  const { error } = responsesServer.error(MillraceError.from(thrown, 'internal')).body
  return { ...reply, body: JSON.stringify({ error, detail }) }
}

/** For a path or tool that is not there: agents show this text to their policy. */
export function notFoundReply(): WireReply {
  return notFound
}

export function methodNotAllowedReply(allowed: readonly string[]): WireReply {
  return jsonReply(405, '{"detail":"Method Not Allowed"}', { allow: allowed.join(', ') })
}

function jsonReply(status: number, body: string, headers: Readonly<Record<string, string>> = {}): WireReply {
  return { status, headers: { 'content-type': 'application/json', ...headers }, body }
}
