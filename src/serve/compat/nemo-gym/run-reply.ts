import type { WireError } from '../../../errors/index.ts'
import { parseExactly } from '../../../kit/index.ts'
import { type JsonObject, type Outcome, outcomes, type RolloutRecord } from '../../../schema/index.ts'
import { type EpisodeResponse, episodeResponse } from '../../rollouts/episode-response.ts'
import type { RolloutService } from '../../rollouts/rollout-service.ts'
import { writePython } from '../fastapi/python-numbers.ts'
import type { RunRow } from './run-row.ts'

/** The reply of `/run` to a row whose rollout has ended: what NeMo Gym's verifiers return, and the row's own fields. */
export function runReply(row: RunRow, record: RolloutRecord, service: RolloutService): EpisodeResponse {
  const failure = failureOf(record)
  const { before, items, after, isCut } = episodeResponse(
    record,
    { repeated: row.repeated, form: 'gym-items', failure: failure?.error.message },
    service,
  )
  const names = row.ownNames.filter((name) => !ofResults.has(name))
  const result = failure
    ? failureFields(failure) + ownPart(row, ofFailures)
    : resultFields(record, names) + ownPart(row, ofResults)
  return {
    before: `{"responses_create_params":${row.params},"response":${before}`,
    items,
    after: `${after},${result}}`,
    isCut,
  }
}

/** The reply to a row that has no rollout, and to a body in which no row can be read. */
export function failedReply(row: RunRow | undefined, failure: RunFailure): string {
  if (!row) return `{${failureFields(failure)}}`
  return `{"responses_create_params":${row.params},${failureFields(failure)}${ownPart(row, ofFailures)}}`
}

/** What a rollout says of itself under these names is not for a row to say. */
const ofResults: ReadonlySet<string> = new Set(['outcome', 'reward_components'])
const ofFailures: ReadonlySet<string> = new Set(['error'])

function ownPart({ own, ownNames }: RunRow, taken: ReadonlySet<string>): string {
  if (!ownNames.some((name) => taken.has(name))) return own === '{}' ? '' : `,${own.slice(1, -1)}`
  const fields = Object.entries(parseExactly(own) as JsonObject).filter(([name]) => !taken.has(name))
  return fields.length === 0 ? '' : `,${JSON.stringify(Object.fromEntries(fields)).slice(1, -1)}`
}

/** What a result has under these names is not for an environment to say. */
const wireFields = [
  'responses_create_params',
  'response',
  'reward',
  'reward_components',
  'outcome',
  'error',
  'agent_ref',
  'skills_ref',
] as const

/** The fields of a result, without braces. Metrics that are called as a field of the protocol, or of the row, are left out. */
export function resultFields(
  { reward, rewards, metrics, outcome }: Pick<RolloutRecord, 'reward' | 'rewards' | 'metrics' | 'outcome'>,
  ownNames: readonly string[],
): string {
  const components = Object.entries(rewards).map(([name, { score }]) => [name, score])
  const taken = new Set([...ownNames, ...wireFields])
  const counted = Object.entries(metrics).filter(([name]) => !taken.has(name) && !name.startsWith('_ng_'))
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

/** Not retried here, but not because of the row: its rollout was stopped, or the weights changed too often meanwhile. */
const passing: ReadonlySet<Outcome> = new Set(['cancelled', 'stale'])

/** Undefined if the rollout has a reward. */
export function failureOf({ outcome, reward, error }: RolloutRecord): RunFailure | undefined {
  if (reward !== null) return undefined
  return {
    kind: outcome,
    error: error ?? { code: 'internal', message: `the rollout ended as ${outcome}, without a reward` },
    isTerminal: outcomes[outcome].rule === 'none' && !passing.has(outcome),
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
