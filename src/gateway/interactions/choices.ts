import { maxChoices, type DialectRequest } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import { upstreamBody } from './_upstream-body.ts'
import type { InteractionCall } from './incoming-request.ts'

/** One of the choices that a client asked for in one request. */
export interface Choice {
  readonly index: number
  readonly count: number
}

/**
 * The requests for the choices of a Chat request with `n` above 1, each in the client's words but for `n`; else the request
 * itself. Each choice is sampled, recorded, retried and repeated by itself, so that its tokens are exact whatever the backend
 * does with `n`. With a seed each choice has the next one, because all would be the same with one seed.
 */
export function choicesOf(call: InteractionCall, members: JsonObject | undefined): readonly InteractionCall[] {
  const { n: count, seed } = members ?? {}
  if (!members || typeof count !== 'number' || !isSeveral(count) || !isSeedFor(count, seed)) return [call]
  return Array.from({ length: count }, (_, index) => {
    const fields = { n: undefined, ...(typeof seed === 'number' && { seed: seed + index }) }
    return { ...call, body: upstreamBody({ bytes: call.body, members }, fields), choice: { index, count } }
  })
}

/** How many choices of the same request come after this one. */
export function choicesAfter({ choice }: InteractionCall): number {
  return choice ? choice.count - 1 - choice.index : 0
}

/** The members of a body that may ask for several choices; undefined for others, which are not parsed. */
export function membersWithChoices({ api, body }: InteractionCall): JsonObject | undefined {
  if (api !== 'chat' || !mentionsChoices(body)) return undefined
  try {
    const members: unknown = JSON.parse(body.toString())
    return isJsonObject(members) ? members : undefined
  } catch {
    // The client is told what is wrong where the request is read.
    return undefined
  }
}

/** Refuses several choices where they cannot be asked for one by one. */
export function refuseChoices({ choices = 1 }: DialectRequest): void {
  if (choices === 1) return
  const message = `\`seed\` is out of range for \`n\` choices: choice i is sent seed + i, an integer of at most ${Number.MAX_SAFE_INTEGER} in size. Send a seed nearer to 0, or none.`
  throw new MillraceError('model_rejected', message, { data: { status: 400, param: 'seed' } })
}

function isSeveral(count: number): boolean {
  return Number.isInteger(count) && count > 1 && count <= maxChoices
}

function isSeedFor(count: number, seed: unknown): boolean {
  return typeof seed !== 'number' || (Number.isSafeInteger(seed) && Number.isSafeInteger(seed + (count - 1)))
}

const key = Buffer.from('"n"')
/** A letter that is escaped, as JSON allows in keys. */
const escapedKey = Buffer.from('\\u006')
/** How much after a key is looked at. */
const glance = 16
/** What follows `"n"` where it is no key, or the key of 1 or of no number. */
const harmless = /^\s*(?:[^\s:]|:\s*(?:1\s*[,}]|[^\s\d]))/

/** Whether the bytes may have a member `n` above 1. Inside of a string, a quote would have a backslash before it. */
function mentionsChoices(body: Buffer): boolean {
  for (let at = body.indexOf(key); at !== -1; at = body.indexOf(key, at + key.length)) {
    const after = at + key.length
    if (!harmless.test(body.toString('latin1', after, after + glance))) return true
  }
  return body.includes(escapedKey)
}
