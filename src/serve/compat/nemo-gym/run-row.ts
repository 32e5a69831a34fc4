import { hash } from 'node:crypto'
import { repeatedFields } from '../../../apis/index.ts'
import { MillraceError, type WireError } from '../../../errors/index.ts'
import { isJsonObject } from '../../../kit/index.ts'
import { agentRefOf, completeParams, hasPlace, ownFields, readParams, unknownParams } from '../../../nemo-gym/index.ts'
import type { JsonObject, Message, Sampling } from '../../../schema/index.ts'
import { exactBody, missing, plainBody, refusal, type Refused } from '../fastapi/wire-errors.ts'

/** A row as `/run` gets it. Crosses threads: what its reply repeats is text, with every number as it came. */
export interface RunRow {
  readonly agent?: string
  /** The same for the same row at the same place of a collection; a row without a place has none. */
  readonly key?: string
  /** JSON of the row's own fields, and of these with `responses_create_params`. */
  readonly own: string
  readonly whole: string
  readonly ownNames: readonly string[]
  /** JSON of `responses_create_params`, complete. */
  readonly params: string
  /** JSON of the fields that the response repeats. */
  readonly repeated: string
  readonly messages: readonly Message[]
  readonly sampling: Sampling
  /** The only tool that the model may call. */
  readonly chosenTool?: string
  /** What is wrong with it: it cannot be run. */
  readonly problem?: WireError
}

const location = ['body', 'responses_create_params'] as const

/** Reads a row. Throws if it is no row at all. */
export function decodeRow(body: Uint8Array): RunRow {
  const exact = exactBody(body)
  const plain = plainBody(body)
  const { responses_create_params: params } = exact
  const own = ownFields(exact)
  const ownText = JSON.stringify(own)
  const complete = isJsonObject(params) ? completeParams(params) : {}
  const paramsText = JSON.stringify(complete)
  const agent = agentRefOf(plain)
  return {
    ...(agent !== undefined && { agent }),
    ...(hasPlace(plain) && { key: hash('sha256', body, 'base64url') }),
    own: ownText,
    whole: ownText === '{}' ? withParams(paramsText, '') : withParams(paramsText, `,${ownText.slice(1, -1)}`),
    ownNames: Object.keys(own),
    params: paramsText,
    repeated: JSON.stringify(repeatedFields(complete)),
    ...requestIn(plain),
  }
}

function withParams(params: string, rest: string): string {
  return `{"responses_create_params":${params}${rest}}`
}

function requestIn(row: JsonObject): Pick<RunRow, 'messages' | 'sampling' | 'chosenTool' | 'problem'> {
  const { responses_create_params: params } = row
  try {
    if (params === undefined) throw missing(location, row)
    if (!isJsonObject(params)) throw refusal(entry('dict_type', 'Input should be a valid dictionary', params))
    const [first, ...rest] = unknownParams(params).map((name) => unknownParam(params, name))
    if (first) throw refusal(first, ...rest)
    const { messages, sampling } = readOpening(params)
    const chosenTool = chosenToolIn(sampling)
    return { messages, sampling, ...(chosenTool !== undefined && { chosenTool }) }
  } catch (thrown) {
    const error = MillraceError.from(thrown, 'internal')
    const problem = error.code === 'task_invalid' ? refusal(entry('value_error', error.rawMessage, null)) : error
    return { messages: [], sampling: {}, problem: problem.toWire() }
  }
}

/** Without an input, the conversation begins with the environment's own prompt. */
function readOpening(params: JsonObject): Pick<RunRow, 'messages' | 'sampling'> {
  const { input } = params
  const isEmpty = Array.isArray(input) && input.length === 0
  const read = readParams(isEmpty ? { ...params, input: '' } : params)
  return isEmpty ? { ...read, messages: [] } : read
}

function chosenToolIn({ extra }: Sampling): string | undefined {
  const choice = extra?.['tool_choice']
  const called = isJsonObject(choice) ? choice['function'] : undefined
  const name = isJsonObject(called) ? called['name'] : undefined
  return typeof name === 'string' ? name : undefined
}

function entry(type: string, msg: string, input: unknown): Refused {
  return { type, loc: location, msg, input }
}

function unknownParam(params: Readonly<Record<string, unknown>>, name: string): Refused {
  return {
    type: 'extra_forbidden',
    loc: [...location, name],
    msg: 'Extra inputs are not permitted',
    input: params[name] ?? null,
  }
}
