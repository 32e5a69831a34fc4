import type { Budget, ChildResult, RolloutContext, RolloutIdentity } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { ServerCalls } from '../../tools/index.ts'

/** Whoever calls over MCP has a budget of their own; here there is none. */
const unlimited: Budget = {
  turnsLeft: Number.POSITIVE_INFINITY,
  tokensLeft: Number.POSITIVE_INFINITY,
  costLeftUsd: Number.POSITIVE_INFINITY,
  workingMsLeft: Number.POSITIVE_INFINITY,
  wallMsLeft: Number.POSITIVE_INFINITY,
}

/**
 * What a tool is given where there is no rollout around it: a task and a state as in any rollout, no model, and no record
 * to keep metrics and notes in.
 */
export class SessionContext implements RolloutContext<unknown, unknown, unknown> {
  readonly task: unknown
  readonly options: unknown
  readonly rollout: RolloutIdentity
  readonly servers: ServerCalls
  readonly signal: AbortSignal
  readonly budget = unlimited
  state: unknown = undefined

  constructor(parts: Pick<SessionContext, 'task' | 'options' | 'rollout' | 'servers' | 'signal'>) {
    this.task = parts.task
    this.options = parts.options
    this.rollout = parts.rollout
    this.servers = parts.servers
    this.signal = parts.signal
  }

  readonly child = (): Promise<ChildResult> =>
    Promise.reject(
      new MillraceError(
        'tool_failed',
        'there is no model to start a child rollout with: tools are served by themselves',
      ),
    )

  readonly metric = (): void => {}

  readonly note = (): void => {}
}
