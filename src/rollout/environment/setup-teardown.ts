import { z } from 'zod'
import type { Environment, SetupContext } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, offAbort, onAbort, withAbort, thrownBy } from '../../kit/index.ts'
import { describeIssues, type Message, messageSchema, safeParse } from '../../schema/index.ts'
import type { AgentRun } from '../agent/agent-run.ts'
import { type AgentEnd, failedEnd } from '../result/outcome.ts'
import type { PromptOverride } from '../schedule/executor.ts'

/** Runs `setup`, if there is one, and `prompt`. Resolves to the messages that the agent begins with, or how the attempt ended. */
export async function prepareTask(run: AgentRun): Promise<{ readonly prompt: readonly Message[] } | AgentEnd> {
  const { environment } = run.services
  const { job, task, options, identity: rollout } = run.liveRollout
  const context = { task, options, rollout, servers: run.context.servers }
  const { messages } = job.opening ?? {}
  let hook: 'setup' | 'prompt' = 'setup'
  try {
    if (environment.setup) await setUpState(run, context)
    hook = 'prompt'
    const prompt =
      messages ?? promptMessages(environment.prompt({ ...context, signal: run.signal, state: run.liveRollout.state }))
    return { prompt: openedWith(prompt, job.opening) }
  } catch (error) {
    run.abandon()
    return failedEnd(error, 'setup_failed', { signal: run.signal, hook })
  }
}

async function setUpState(run: AgentRun, context: Omit<SetupContext<unknown, unknown>, 'signal'>): Promise<void> {
  const { liveRollout, services, budget, time } = run
  // Its own signal: what `setup` opened with it must outlive an abort of the agent's, until teardown ended.
  using scope = new AbortScope(run.signal)
  const { signal } = scope
  // Setting up is not the agent's work, so its clock stands still; the wall clock does not.
  budget.startWait()
  try {
    liveRollout.state = await time.spentIn('setup', () => setUp(services.environment, { ...context, signal }))
  } finally {
    budget.endWait()
  }
}

const conversationSchema = z.array(messageSchema).min(1)

export function promptMessages(prompt: string | readonly Message[]): readonly Message[] {
  if (typeof prompt === 'string') return [{ role: 'user', content: prompt }]
  const checked = safeParse(conversationSchema, prompt)
  // The author's own objects, not the parsed copies: messages that rollouts share stay shared.
  if (checked.success) return prompt
  throw new MillraceError(
    'setup_failed',
    `it must return a string or a list of chat messages: ${describeIssues(checked.error.issues, prompt)}`,
  )
}

function openedWith(prompt: readonly Message[], opening: PromptOverride | undefined): readonly Message[] {
  if (!opening) return prompt
  const messages = [...prompt]
  const { system, prompt: asked } = opening
  if (asked !== undefined) put(messages, { role: 'user', content: asked }, messages.length)
  if (system !== undefined) put(messages, { role: 'system', content: system }, 0)
  return messages
}

function put(messages: Message[], message: Message, otherwise: number): void {
  const index = messages.findIndex(({ role }) => role === message.role)
  if (index === -1) messages.splice(otherwise, 0, message)
  else messages[index] = message
}

type Opened = SetupContext<unknown, unknown>

/** What `teardown` is told, without the signal: `teardown` gets one for its own time. */
export type TeardownContext = Omit<Opened, 'signal'> & { readonly state: unknown }

/** How long `teardown` may take: until `untilMs`, or a moment after `signal` aborts. It always has at least that moment. */
interface TearDownTime {
  readonly untilMs: number
  readonly signal?: AbortSignal
}

/** Tidying up gets a moment even when the time is up or the rollout was cancelled. */
const momentMs = 5_000

/** The state that `setup` makes. A state that it still makes after an abort is torn down here. */
export async function setUp(environment: Environment, context: Opened): Promise<unknown> {
  const setup = Promise.try(() => environment.setup?.(context))
  try {
    return await withAbort(setup, context.signal)
  } catch (error) {
    if (context.signal.aborted) {
      setup.then((state) => tearDown(environment, { ...context, state })).catch(() => {})
    }
    throw error
  }
}

/** Why `setup` failed, for the reader of a record: that it was abandoned, or what it threw and where. */
export function setupFailure(thrown: unknown, signal: AbortSignal): unknown {
  return signal.aborted ? signal.reason : thrownBy('setup', thrown, 'setup_failed')
}

export async function tearDown(
  environment: Environment,
  closing: TeardownContext,
  time?: TearDownTime,
): Promise<MillraceError | undefined> {
  if (!environment.teardown) return undefined
  const untilMs = time && !time.signal?.aborted ? time.untilMs : 0
  const timeoutMs = Math.max(momentMs, untilMs - performance.now())
  using scope = new AbortScope(undefined, timeoutMs, () => tookLonger(`${Math.round(timeoutMs)} ms`))
  let hurry: NodeJS.Timeout | undefined
  const listener = {
    handleEvent: () => {
      const why = tookLonger(`${momentMs} ms after the rollout was cancelled`)
      hurry = setTimeout(() => scope.abort(why), momentMs)
    },
  }
  if (time?.signal) onAbort(time.signal, listener)
  const { task, options, rollout, servers, state } = closing
  const context = { task, options, rollout, servers, signal: scope.signal, state }
  try {
    await withAbort(
      Promise.try(() => environment.teardown?.(context)),
      scope.signal,
    )
    return undefined
  } catch (error) {
    return thrownBy('teardown', error, 'teardown_failed')
  } finally {
    clearTimeout(hurry)
    if (time?.signal) offAbort(time.signal, listener)
  }
}

function tookLonger(than: string): MillraceError {
  return new MillraceError('teardown_failed', `it took longer than ${than}`)
}
