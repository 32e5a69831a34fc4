import { type ErrorCode, MillraceError, type WireError } from '../../errors/index.ts'
import type { VersionLag } from '../../inference/index.ts'
import { thrownBy } from '../../kit/index.ts'
import { type Outcome, type RolloutRecord } from '../../schema/index.ts'
import { endsAttempt } from '../../tools/index.ts'
import type { ExhaustedLimit } from '../agent/budget.ts'

/** How an agent's work, or another part of a rollout, ended. */
export interface AgentEnd {
  readonly outcome: Outcome
  readonly error?: MillraceError
}

export const completed: AgentEnd = { outcome: 'completed' }

export function endedBy(error: MillraceError): AgentEnd {
  return { outcome: outcomeOfError(error), error }
}

const outcomeOfLimit: Record<ExhaustedLimit, Outcome> = {
  turns: 'max_turns',
  tokens: 'max_tokens',
  cost: 'max_cost',
  time: 'agent_timeout',
  silence: 'infra_timeout',
  wall: 'infra_timeout',
}

/**
 * How a replay ends the agent again where its recording ends: a limit is used up, or the error from `outside` comes again. With
 * `own` the agent's code ends by itself, or the agent did not run to its end.
 */
export const endInReplay: Record<Outcome, ExhaustedLimit | 'outside' | 'own'> = {
  completed: 'own',
  max_turns: 'turns',
  max_tokens: 'tokens',
  context_length: 'outside',
  agent_timeout: 'time',
  max_cost: 'cost',
  agent_error: 'own',
  model_error: 'outside',
  tool_infra_error: 'outside',
  sandbox_lost: 'outside',
  env_error: 'own',
  reward_error: 'own',
  infra_timeout: 'wall',
  worker_lost: 'own',
  poisoned: 'own',
  cancelled: 'outside',
  stale: 'own',
}

/** A code that is not here has no outcome of its own: the agent's own code threw it. */
const outcomeOfCode: Partial<Record<ErrorCode, Outcome>> = {
  context_length: 'context_length',
  weights_stale: 'stale',
  cancelled: 'cancelled',
  closed: 'cancelled',
  // The tool that started this child ran out of time.
  tool_timeout: 'cancelled',
  // The run is stopping and nothing of this attempt can be recorded any more; on resume it goes on from its journal.
  disk_full: 'cancelled',
  store_failed: 'cancelled',
  run_gone: 'cancelled',
  tool_infra: 'tool_infra_error',
  // The agent had its answer verified.
  reward_failed: 'reward_error',
  model_connect: 'model_error',
  model_timeout: 'model_error',
  model_conflict: 'model_error',
  model_rate_limited: 'model_error',
  model_server_error: 'model_error',
  model_overloaded: 'model_error',
  model_truncated: 'model_error',
  model_malformed: 'model_error',
  model_auth: 'model_error',
  model_not_found: 'model_error',
  model_rejected: 'model_error',
}

function outcomeOfError(error: MillraceError): Outcome {
  return outcomeOfSpending(error) ?? outcomeOfCode[error.code] ?? 'agent_error'
}

/** How a rollout ends that has used up a limit; undefined if the error names no limit, as one thrown by an author may. */
function outcomeOfSpending({ code, data: { limit } }: MillraceError): Outcome | undefined {
  return code === 'budget_exhausted' && isSpentLimit(limit) ? outcomeOfLimit[limit] : undefined
}

function isSpentLimit(limit: unknown): limit is ExhaustedLimit {
  return typeof limit === 'string' && Object.hasOwn(outcomeOfLimit, limit)
}

export function staleError({ version, newest, behind }: VersionLag): MillraceError {
  const versions = `${behind} version${behind === 1 ? '' : 's'}`
  return new MillraceError(
    'weights_stale',
    `tokens were sampled with weight version ${version}, which is ${versions} behind ${newest}. Raise --max-versions-behind (maxVersionsBehind) to keep such rollouts.`,
    { data: { version, newest, behind } },
  )
}

/** A phase outside the agent failed, or somebody stopped the rollout. `hook` is the function that threw, if any. */
export function failedEnd(
  thrown: unknown,
  code: ErrorCode,
  { signal, hook }: { signal: AbortSignal; hook?: string },
): AgentEnd {
  if (signal.aborted) return endedBy(MillraceError.from(signal.reason, 'cancelled'))
  if (endsAttempt(thrown)) {
    // A child could not follow its journal: nothing of this attempt counts.
    if (thrown.code === 'replay_diverged') throw thrown
    return endedBy(thrown)
  }
  const spent = thrown instanceof MillraceError ? outcomeOfSpending(thrown) : undefined
  if (spent) return { outcome: spent, error: MillraceError.from(thrown, code) }
  return {
    outcome: code === 'reward_failed' ? 'reward_error' : 'env_error',
    error: hook === undefined ? recoded(thrown, code) : thrownBy(hook, thrown, code),
  }
}

function recoded(thrown: unknown, code: ErrorCode): MillraceError {
  return thrown instanceof MillraceError && thrown.code !== code
    ? new MillraceError(code, thrown.rawMessage, { data: thrown.data, cause: thrown })
    : MillraceError.from(thrown, code)
}

/** The author's own code threw, or misused its context. Other errors' codes already say what they mean. */
export function agentFault(hook: 'agent' | 'update' | 'contextPolicy', thrown: unknown): MillraceError {
  const isOurs = thrown instanceof MillraceError && thrown.code !== 'env_invalid'
  return isOurs ? thrown : thrownBy(hook, thrown, 'agent_failed')
}

type AgentOutcome = Pick<RolloutRecord, 'agentOutcome'>

/**
 * The record of a failed reward keeps how the agent ended, unless by itself, because a later scoring must know. An agent that was
 * stopped because `verify()` failed has ended as `reward_error` itself.
 */
export function agentOutcomeBehind(outcome: Outcome): AgentOutcome {
  return outcome === 'completed' ? {} : { agentOutcome: outcome }
}

/** How the agent of a record ended, whatever became of its reward. An agent that ended by itself has no `agentOutcome`. */
export function agentOutcomeOf({ outcome, agentOutcome }: AgentOutcome & Pick<RolloutRecord, 'outcome'>): Outcome {
  return outcome === 'reward_error' ? (agentOutcome ?? 'completed') : outcome
}

export function failedReward(
  record: RolloutRecord,
  error: WireError,
): Pick<RolloutRecord, 'outcome' | 'truncated' | 'reward' | 'error' | 'agentOutcome'> {
  const agentOutcome = agentOutcomeBehind(agentOutcomeOf(record))
  return { outcome: 'reward_error', truncated: false, reward: null, error, ...agentOutcome }
}
