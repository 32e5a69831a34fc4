import type { Environment, SetupContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { AbortScope, raced, thrownBy } from '../kit/index.ts'

type Opened = SetupContext<unknown, unknown>

/** What `teardown` is told, without the signal: `teardown` gets one for its own time. */
export type Closing = Omit<Opened, 'signal'> & { readonly state: unknown }

/** How long `teardown` may take: until `untilMs`, or a moment after `signal` aborts. It always has at least that moment. */
export interface TearDownTime {
  readonly untilMs: number
  readonly signal?: AbortSignal
}

/** Tidying up gets a moment even when the time is up or the rollout was cancelled. */
const momentMs = 5_000

/**
 * The state that `setup` makes. Rejects with what `setup` threw, or with the signal's reason as soon as that aborts. After an
 * abort the caller tears down without a state, and a state that `setup` still makes is torn down here.
 */
export async function setUp(environment: Environment, context: Opened): Promise<unknown> {
  const setup = Promise.try(() => environment.setup?.(context))
  try {
    return await raced(setup, context.signal)
  } catch (error) {
    if (context.signal.aborted) {
      setup.then((state) => tearDown(environment, { ...context, state })).catch(() => {})
    }
    throw error
  }
}

/** Why `setup` failed, for the reader of a record: that it was given up, or what it threw and where. */
export function setupFailure(thrown: unknown, signal: AbortSignal): unknown {
  return signal.aborted ? signal.reason : thrownBy('setup', thrown, 'setup_failed')
}

/** Runs `teardown`; the error if it failed. Never rejects. */
export async function tearDown(
  environment: Environment,
  closing: Closing,
  time?: TearDownTime,
): Promise<MillraceError | undefined> {
  if (!environment.teardown) return undefined
  const untilMs = time && !time.signal?.aborted ? time.untilMs : 0
  const timeoutMs = Math.max(momentMs, untilMs - performance.now())
  using scope = new AbortScope(undefined, timeoutMs, () => tookLonger(`${Math.round(timeoutMs)} ms`))
  let hurry: NodeJS.Timeout | undefined
  const onCancel = (): void => {
    const why = tookLonger(`${momentMs} ms after the rollout was cancelled`)
    hurry = setTimeout(() => scope.abort(why), momentMs)
  }
  time?.signal?.addEventListener('abort', onCancel, { once: true })
  const { task, options, rollout, servers, state } = closing
  const context = { task, options, rollout, servers, signal: scope.signal, state }
  try {
    await raced(
      Promise.try(() => environment.teardown?.(context)),
      scope.signal,
    )
    return undefined
  } catch (error) {
    return thrownBy('teardown', error, 'teardown_failed')
  } finally {
    clearTimeout(hurry)
    time?.signal?.removeEventListener('abort', onCancel)
  }
}

function tookLonger(than: string): MillraceError {
  return new MillraceError('teardown_failed', `it took longer than ${than}`)
}
