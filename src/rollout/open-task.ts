import { AbortScope } from '../kit/index.ts'
import type { Message } from '../schema/index.ts'
import type { AgentEnd } from './agent-end.ts'
import type { AgentRun } from './agent-run.ts'
import { setUp } from './environment-life.ts'
import { failedEnd } from './failed-end.ts'
import { openedWith } from './opened-with.ts'
import { promptMessages } from './prompt-messages.ts'

/** The messages that an agent begins with; or how the attempt ended, if `setup` or `prompt` failed. */
type OpenedTask = { readonly prompt: readonly Message[] } | AgentEnd

/** Runs `setup`, then opens the task. */
export async function setUpTask(run: AgentRun): Promise<OpenedTask> {
  const { liveRollout, services } = run
  const { task, options, identity } = liveRollout
  const { servers } = run.context
  // A signal of its own: what `setup` opened with it must outlive an abort of the agent's signal, until reward and teardown
  // ended.
  using scope = new AbortScope(run.signal)
  const context = { task, options, rollout: identity, servers, signal: scope.signal }
  // Setting up is not the agent's work, so its clock stands still; the wall clock does not.
  run.budget.startWait()
  try {
    liveRollout.state = await run.time.spentIn('setup', () => setUp(services.environment, context))
  } catch (error) {
    return unopened(run, error, 'setup')
  } finally {
    run.budget.endWait()
  }
  return openTask(run)
}

/** Asks the environment for the prompt of a task that needs no `setup`, or is set up. */
export function openTask(run: AgentRun): OpenedTask {
  const { task, options, identity, state, job } = run.liveRollout
  const { servers } = run.context
  const context = { task, options, rollout: identity, servers, signal: run.signal, state }
  try {
    return { prompt: openedWith(promptMessages(run.services.environment.prompt(context)), job.opening) }
  } catch (error) {
    return unopened(run, error, 'prompt')
  }
}

function unopened(run: AgentRun, error: unknown, hook: 'setup' | 'prompt'): AgentEnd {
  run.abandon()
  return failedEnd(error, 'setup_failed', { signal: run.signal, hook })
}
