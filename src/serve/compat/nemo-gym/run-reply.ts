import { responseFields } from '../../../apis/index.ts'
import type { WireError } from '../../../errors/index.ts'
import { episodeName, episodeResponseId, recordItems } from '../../../nemo-gym/index.ts'
import { outcomes, type RolloutRecord } from '../../../schema/index.ts'
import type { RolloutService } from '../../rollouts/rollout-service.ts'
import { writePython } from './python-numbers.ts'
import type { RunRow } from './run-row.ts'

/** More is written on a codec thread. */
const maxInlineCharacters = 128 * 1024

/** An episode's response in parts: `items` is the list within it, as text or in chunks from a codec thread. */
export interface EpisodeResponse {
  readonly before: string
  readonly items: string | AsyncGenerator<Uint8Array<ArrayBuffer>, void, void>
  readonly after: string
}

/** The whole of a rollout as one object of Responses. `repeated` is JSON of the fields of the request that it repeats. */
function episodeResponse(record: RolloutRecord, repeated: string, service: RolloutService): EpisodeResponse {
  const { folder } = service.info
  const episode = episodeName(folder, record.id)
  const wasCut = record.outcome === 'max_tokens' || record.outcome === 'context_length'
  const fields = responseFields(
    { id: episodeResponseId(episode), model: record.model, createdAt: Math.floor(record.timing.startedAt / 1000) },
    { finishReason: wasCut ? 'length' : 'stop', usage: record.usage },
  )
  return {
    before: `${JSON.stringify(fields).slice(0, -1)},${repeated.slice(1, -1)},"output":`,
    items: inlineItems(record, episode, service) ?? service.codec.encode(record.id, 'items'),
    after: '}',
  }
}

function inlineItems(record: RolloutRecord, episode: string, { capturesTokens }: RolloutService): string | undefined {
  if (capturesTokens) return undefined
  const characters = record.messages.reduce((sum, { content }) => sum + (content?.length ?? 0), 0)
  return characters > maxInlineCharacters ? undefined : recordItems(record, episode)
}

/** The reply of `/run` to a row whose rollout has ended: what NeMo Gym's verifiers return, and the row's own fields. */
export function runReply(row: RunRow, record: RolloutRecord, service: RolloutService): EpisodeResponse {
  const { before, items, after } = episodeResponse(record, row.repeated, service)
  const failure = failureOf(record)
  const result = failure ? failureFields(failure) : resultFields(record, row.ownNames)
  return {
    before: `{"responses_create_params":${row.params},"response":${before}`,
    items,
    after: `${after},${result}${ownPart(row)}}`,
  }
}

/** The reply to a row that has no rollout. */
export function failedReply(row: RunRow, failure: RunFailure): string {
  return `{"responses_create_params":${row.params},${failureFields(failure)}${ownPart(row)}}`
}

function ownPart({ own }: RunRow): string {
  return own === '{}' ? '' : `,${own.slice(1, -1)}`
}

/** The fields of a result, without braces. Those that the row has itself are left out. */
export function resultFields(
  { reward, rewards, metrics, outcome }: Pick<RolloutRecord, 'reward' | 'rewards' | 'metrics' | 'outcome'>,
  ownNames: readonly string[],
): string {
  const components = Object.entries(rewards).map(([name, { score }]) => [name, score])
  const own = new Set([...ownNames, 'outcome', 'reward_components'])
  const counted = Object.entries(metrics).filter(([name]) => !own.has(name))
  const fields = {
    reward,
    ...(!ownNames.includes('outcome') && { outcome }),
    ...(components.length > 1 && { reward_components: Object.fromEntries(components) }),
    ...Object.fromEntries(counted),
  }
  return writePython(fields).slice(1, -1)
}

export interface RunFailure {
  /** An outcome, or the code of an error if there was no rollout. */
  readonly kind: string
  readonly error: WireError
  /** Another attempt would end in the same way. */
  readonly isTerminal: boolean
  /** Nothing was done for it: a collector that resumes asks for it again, as if it never had. */
  readonly isForNobody: boolean
}

/** Undefined if the rollout has a reward. */
export function failureOf({ outcome, reward, error }: RolloutRecord): RunFailure | undefined {
  if (reward !== null) return undefined
  return {
    kind: outcome,
    error: error ?? { code: 'internal', message: `the rollout ended as ${outcome}, without a reward` },
    isTerminal: outcomes[outcome].rule === 'none' && outcome !== 'cancelled',
    isForNobody: false,
  }
}

function failureFields({ kind, error: { code, message }, isTerminal, isForNobody }: RunFailure): string {
  const fields = {
    _ng_failure_class: kind,
    ...(isTerminal && { _ng_failure_terminal: true }),
    ...(isForNobody && { _ng_no_persist: true }),
    error: { code, message },
  }
  return JSON.stringify(fields).slice(1, -1)
}
