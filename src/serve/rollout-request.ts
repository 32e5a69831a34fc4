import { MillraceError } from '../errors/index.ts'
import { describeIssues, samplingSchema, type Sampling } from '../schema/index.ts'

/** What is asked of a service: rollouts of one task or of many. */
export interface RolloutRequest {
  /** Said again, it means the same rollouts. Made up where the caller has none. */
  readonly requestId?: string
  /** Values, or `JsonText`. */
  readonly tasks: readonly unknown[]
  /** Rollouts per task; the service's own if not given. */
  readonly attempts?: number
  /** On top of the service's own. */
  readonly sampling?: Sampling
  /** Its rollouts go on when nobody reads their results. */
  readonly isDetached?: boolean
}

/** A task that is still text: it is parsed when its turn comes, so that many do not hold up the loop. */
export class JsonText {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

const requestIdPattern = /^[\w.:-]{1,128}$/

/** Everything about a request but its tasks. */
export function checkRequest(
  { requestId, tasks, attempts, sampling }: RolloutRequest,
  rules: { readonly maxTasks: number; readonly groupSize: number | undefined },
): void {
  if (requestId !== undefined && !requestIdPattern.test(requestId)) {
    throw usage('requestId is 1 to 128 letters, digits or any of . _ : -')
  }
  if (tasks.length === 0) throw usage('a request needs at least one task')
  if (tasks.length > rules.maxTasks) {
    throw usage(`a request has at most ${rules.maxTasks} tasks, not ${tasks.length}; send it in parts`)
  }
  if (attempts !== undefined && !(Number.isInteger(attempts) && attempts > 0)) {
    throw usage(`attempts is a whole number above 0, not ${attempts}`)
  }
  if (attempts !== undefined && rules.groupSize !== undefined && attempts !== rules.groupSize) {
    throw usage(
      `this environment settles the ${rules.groupSize} attempts at a task together; ask for that many, or start the server with --attempts ${attempts} (attempts)`,
    )
  }
  if (sampling === undefined) return
  const checked = samplingSchema.safeParse(sampling)
  if (!checked.success) throw usage(`sampling does not fit: ${describeIssues(checked.error.issues)}`)
}

function usage(message: string): MillraceError {
  return new MillraceError('usage', message)
}
