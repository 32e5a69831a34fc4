import { availableParallelism } from 'node:os'
import { MillraceError } from '../errors/index.ts'
import { machineShare, Semaphore } from '../kit/index.ts'
import { checkCount } from './_check-count.ts'
import { checkOptions } from './_check-options.ts'
import { checkTimeout } from './_check-timeout.ts'
import { runCommand } from './_run-command.ts'
import { rewardClock, type TimedContext } from './reward-clock.ts'
import type { RewardFunction } from './reward.ts'

export interface CommandRewardOptions {
  /** The program and its arguments. No shell reads them. */
  readonly command: readonly [file: string, ...args: string[]]
  readonly cwd?: string
  readonly timeoutMs?: number
  /** Variables beside PATH, HOME and LANG, which the program always gets. No others are passed on, least of all API keys. */
  readonly env?: Readonly<Record<string, string>>
  /**
   * How many of these commands run at once. Without it, all such commands together run one per processor. Workers divide the
   * number: each has its part, and at least one.
   */
  readonly maxConcurrency?: number
}

const optionNames: Readonly<Record<keyof CommandRewardOptions, true>> = {
  command: true,
  cwd: true,
  timeoutMs: true,
  env: true,
  maxConcurrency: true,
}

const passedOn = ['PATH', 'HOME', 'LANG']

/** Waiting rewards hold their rollouts' places, so this many can only mean that the limits are wrong. */
const maxWaiting = 100_000

/**
 * The permits of all commands without a `maxConcurrency`. Made with the first one, when a worker knows how many share the
 * processors.
 */
let permitsOfAll: Semaphore | undefined

/**
 * A reward in any language: a program that reads `{ task, answer, messages, outcome, truncated }` as JSON from its standard
 * input and prints, as its last line, a number or `{"score": number}`.
 */
export function commandReward<Task, State, Options>(
  options: CommandRewardOptions,
): RewardFunction<Task, State, Options> {
  checkOptions('commandReward()', options, optionNames)
  if (!Array.isArray(options.command)) {
    throw new MillraceError('env_invalid', "`command` of commandReward() is a list: ['python3', 'score.py']")
  }
  const [file, ...args] = options.command
  const { cwd, timeoutMs = 30_000, maxConcurrency } = options
  checkTimeout('commandReward()', timeoutMs)
  // With 0, a reward would wait until its time is up.
  if (maxConcurrency !== undefined) checkCount('`maxConcurrency` of commandReward()', maxConcurrency, 1)
  const places = (atOnce: number): Semaphore => new Semaphore(machineShare(atOnce), maxWaiting)
  const permits =
    maxConcurrency === undefined ? (permitsOfAll ??= places(availableParallelism())) : places(maxConcurrency)
  return async (context) => {
    const { task, answer, messages, outcome, truncated, signal } = context
    await takeTurn(permits, context)
    try {
      const input = JSON.stringify({ task, answer, messages, outcome, truncated })
      const output = await runCommand({ file, args, cwd, env: environmentFor(options), input, timeoutMs, signal })
      return scoreIn(output, file)
    } finally {
      permits.release()
    }
  }
}

/** No time of the reward passes in the queue: with many rollouts at once it may be longer than all that is kept for rewards. */
async function takeTurn(
  permits: Semaphore,
  { signal, [rewardClock]: clock }: TimedContext & { signal: AbortSignal },
): Promise<void> {
  clock?.startWait()
  try {
    await permits.acquire(signal)
  } finally {
    clock?.endWait()
  }
}

function environmentFor({ env }: CommandRewardOptions): Record<string, string> {
  const environment: Record<string, string> = {}
  for (const name of passedOn) {
    const value = process.env[name]
    if (value !== undefined) environment[name] = value
  }
  return { ...environment, ...env }
}

function scoreIn(output: string, file: string): number {
  const lastLine = output.trimEnd().split('\n').at(-1)?.trim() ?? ''
  let value: unknown
  try {
    value = JSON.parse(lastLine)
  } catch {
    value = undefined
  }
  if (typeof value === 'object' && value !== null && 'score' in value) value = value.score
  if (typeof value === 'number' && Number.isFinite(value)) return value
  throw new MillraceError(
    'reward_failed',
    `${file} must print a number or {"score": number} as its last line; the last line was ${JSON.stringify(lastLine.slice(0, 200))}`,
  )
}
