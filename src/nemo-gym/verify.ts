import { hash } from 'node:crypto'
import { repeatedFields, responseFields } from '../apis/index.ts'
import { MillraceError } from '../errors/index.ts'
import { hasInexactNumber, parseExactly } from '../kit/index.ts'
import { isJsonObject, type Json, type JsonObject, type Message, type Outcome, type Usage } from '../schema/index.ts'
import { episodeItems, itemPieces } from './episode-items.ts'
import { type GymTask, withFields } from './gym-task.ts'

/** The note that keeps what a verifier says beside the reward. */
export const verifiedNote = 'nemo_gym'

/** Fields of a verifier's reply that repeat the request, or stand elsewhere in a result. */
const ownPlace: ReadonlySet<string> = new Set(['responses_create_params', 'response', 'reward', 'agent_ref'])

interface Episode {
  readonly rollout: string
  readonly messages: readonly Message[]
  readonly outcome: Outcome
  /** How often the verifier has asked for a correction: then it is shown the last answer only. */
  readonly corrections: number
  /** What the replies that the verifier is shown have used. */
  readonly usage: Usage
}

/** The same for an episode to which nothing was added. */
export function episodeDigest({ messages, outcome }: Episode): string {
  return hash('sha256', JSON.stringify([outcome, messages]), 'base64url')
}

/** What a verifier is sent: the row, with the episode as a response. */
export function verifyBody(task: GymTask, row: string, episode: Episode): string {
  const { rollout, messages, outcome, corrections, usage } = episode
  const { responses_create_params: params } = JSON.parse(task.row) as { readonly responses_create_params: JsonObject }
  const { items } = episodeItems(
    rollout,
    messages
      .slice(corrections > 0 ? lastAsked(messages) : openingLength(task, messages))
      .map((message) => ({ message })),
  )
  const model = typeof params['model'] === 'string' ? params['model'] : 'policy'
  const about = responseFields(
    { id: `resp_${rollout}`, model, createdAt: Math.floor(Date.now() / 1000) },
    { finishReason: outcome === 'max_tokens' ? 'length' : 'stop', usage },
  )
  const output = items.map((item) => [...itemPieces(item)].join('')).join(',')
  const response = withFields(JSON.stringify({ ...about, ...repeatedFields(params) }), `"output":[${output}]`)
  return withFields(row, `${corrections > 0 ? `"turn_index":${corrections},` : ''}"response":${response}`)
}

/** Where tool calls are written in text, the prompt has a message more that tells of the tools. */
function openingLength({ request }: GymTask, [first]: readonly Message[]): number {
  const asked = request.messages
  return first?.role === 'system' && asked[0]?.role !== 'system' ? asked.length + 1 : asked.length
}

function lastAsked(messages: readonly Message[]): number {
  return messages.findLastIndex(({ role }) => role === 'user') + 1
}

export interface Verified {
  readonly reward: number
  /** The numbers among its fields. */
  readonly metrics: Readonly<Record<string, number>>
  /** Its other fields, and the numbers: an object, or its JSON where a number would not be written as it came. */
  readonly fields: Json
  readonly needsCorrection?: boolean
  readonly correctionPrompt?: string
}

/** Reads a verifier's reply. What only repeats the row is left out. Throws `reward_failed` if it has no reward. */
export function readVerified(text: string, row: string): Verified {
  const reply = parsed(text)
  const { reward, _ng_failure_class: failure, needs_correction: needsCorrection, correction_prompt: prompt } = reply
  if (typeof failure === 'string') throw new MillraceError('reward_failed', `the verifier failed: ${failure}`)
  if (typeof reward !== 'number') {
    throw new MillraceError('reward_failed', 'the verifier’s reply has no `reward` that is a number')
  }
  const asked = parsed(row)
  const isExact = !hasInexactNumber(reply)
  const exact = isExact ? reply : (parseExactly(text) as JsonObject)
  const kept = Object.keys(reply).filter(
    (name) => !ownPlace.has(name) && JSON.stringify(asked[name]) !== JSON.stringify(reply[name]),
  )
  const fields = Object.fromEntries(kept.map((name) => [name, exact[name]] as const))
  const numbers = kept.flatMap((name): [string, number][] => {
    const value = reply[name]
    return typeof value === 'number' || typeof value === 'boolean' ? [[name, Number(value)]] : []
  })
  return {
    reward,
    metrics: Object.fromEntries(numbers.filter(([name]) => !name.startsWith('_ng_') && name !== '__proto__')),
    fields: isExact ? fields : JSON.stringify(fields),
    ...(typeof needsCorrection === 'boolean' && { needsCorrection }),
    ...(typeof prompt === 'string' && prompt !== '' && { correctionPrompt: prompt }),
  }
}

function parsed(text: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text)
    if (isJsonObject(value)) return value
  } catch {
    // Told below.
  }
  throw new MillraceError('reward_failed', `the verifier’s reply is not a JSON object: ${text.slice(0, 200)}`)
}
