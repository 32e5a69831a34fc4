import { availableParallelism } from 'node:os'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, jsonOrText, machineShare, withAbort, Semaphore, timerMs, settlesWithin } from '../../kit/index.ts'
import { ProcessGuard, resumeSpawned, signal as sendSignal, spawnSuspended, startRefusal } from '../../process/index.ts'
import { checkOptions, timeoutSchema, wholeNumber } from '../define/check-options.ts'
import { rewardClock, type RewardFunction, type TimedContext } from './reward.ts'

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

const optionShape = {
  command: z.array(z.string(), "must be a list: ['python3', 'score.py']").min(1),
  cwd: z.string().optional(),
  timeoutMs: timeoutSchema.optional(),
  env: z.record(z.string(), z.string()).optional(),
  // With 0, a reward would wait until its time is up.
  maxConcurrency: wholeNumber(1).optional(),
}

const passedOn = ['PATH', 'HOME', 'LANG']

/** Waiting rewards hold their rollouts' places, so this many can only mean that the limits are wrong. */
const maxWaiting = 100_000

/** The permits of all commands without a `maxConcurrency`; made late, when a worker knows how many share the processors. */
let permitsOfAll: Semaphore | undefined

/**
 * A reward in any language: a program that reads `{ task, answer, messages, outcome, truncated }` as JSON from its standard
 * input and prints, as its last line, a number or `{"score": number}`.
 */
export function commandReward<Task, State, Options>(
  options: CommandRewardOptions,
): RewardFunction<Task, State, Options> {
  checkOptions('commandReward()', optionShape, options)
  const [file, ...args] = options.command
  const { cwd, timeoutMs = 30_000, maxConcurrency } = options
  const slots = (atOnce: number): Semaphore => new Semaphore(machineShare(atOnce), maxWaiting)
  const permits =
    maxConcurrency === undefined ? (permitsOfAll ??= slots(availableParallelism())) : slots(maxConcurrency)
  return async (context) => {
    const { task, answer, messages, outcome, truncated, signal } = context
    const { [rewardClock]: clock }: typeof context & TimedContext = context
    // No time of the reward passes in the queue: it may be longer than all that is kept for rewards.
    clock?.startWait()
    await permits.acquire(signal).finally(() => clock?.endWait())
    try {
      const input = JSON.stringify({ task, answer, messages, outcome, truncated })
      const passed = passedOn.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]]))
      const env: Record<string, string> = { ...Object.fromEntries(passed), ...options.env }
      return scoreIn(await runCommand({ file, args, cwd, env, input, timeoutMs, signal }), file)
    } finally {
      permits.release()
    }
  }
}

function scoreIn(output: string, file: string): number {
  const lastLine = output.trimEnd().split('\n').at(-1)?.trim() ?? ''
  let value = jsonOrText(lastLine)
  if (typeof value === 'object' && value !== null && 'score' in value) value = value.score
  if (typeof value === 'number' && Number.isFinite(value)) return value
  throw new MillraceError(
    'reward_failed',
    `${file} must print a number or {"score": number} as its last line; the last line was ${JSON.stringify(lastLine.slice(0, 200))}`,
  )
}

const maxOutputBytes = 1024 * 1024
const keptErrorChars = 2_000
/** How long pipes may stay open after the program has ended. A process that left its group may hold them open for longer. */
const pipeLimitMs = 1_000

interface Command {
  readonly file: string
  readonly args: readonly string[]
  readonly cwd: string | undefined
  readonly env: Readonly<Record<string, string>>
  readonly input: string
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/**
 * Runs a program and resolves with its output. No shell reads its arguments. The program leads a process group of its own,
 * which is always killed: at the time limit, on abort, when the program has ended but left processes running, and when this
 * process itself is gone.
 */
async function runCommand({ file, args, cwd, env, input, signal, ...command }: Command): Promise<string> {
  signal.throwIfAborted()
  const program = await spawnSuspended({ command: file, args, cwd }, env).catch((error: NodeJS.ErrnoException) => {
    throw rewardFailed(`${file} ${error.code === 'ENOENT' ? unstartable : error.message}`, error)
  })
  const { pid, stdin, stdout, stderr, resumePipe } = program
  const guard = ProcessGuard.ofThisThread
  const output: Buffer[] = []
  let outputBytes = 0
  let errorText = ''
  let hasExited = false
  const failure = (what: string, cause?: unknown): MillraceError => {
    const stderrText = errorText.trim() === '' ? '' : `; stderr ended with: ${errorText.trim()}`
    return rewardFailed(`${file} ${what}${stderrText}`, cause)
  }
  const timeoutMs = timerMs(command.timeoutMs)
  using scope = new AbortScope(signal, timeoutMs, () => failure(`took longer than ${timeoutMs / 1_000} s (timeoutMs)`))
  stdout.on('data', (chunk: Buffer) => {
    outputBytes += chunk.length
    output.push(chunk)
    if (outputBytes > maxOutputBytes) scope.abort(failure(`printed more than ${maxOutputBytes / 1024} KB`))
  })
  stderr.setEncoding('utf8').on('data', (text: string) => {
    errorText = (errorText + text).slice(-keptErrorChars)
  })
  const exited = program.exited.then((exit) => {
    hasExited = true
    // Processes that outlive the program must not delay the end, which waits for the last output.
    sendSignal(-pid, 'SIGKILL')
    void guard.forget(pid)
    return exit
  })
  // A program need not read its input, so errors here do not matter; its output decides.
  stdin.end(input)
  try {
    const watched = guard.watch(pid).catch((error: unknown) => {
      throw failure(`was not started: ${MillraceError.from(error, 'reward_failed').rawMessage}`, error)
    })
    await withAbort(watched, scope.signal)
    resumeSpawned(program)
    const exit = await withAbort(exited, scope.signal)
    await withAbort(settlesWithin(program.closed, pipeLimitMs), scope.signal)
    // Output that is already in the pipe is read before an immediate runs, even if the event loop was held up.
    await new Promise(setImmediate)
    if (startRefusal(exit, errorText)) throw rewardFailed(`${file} ${unstartable}`)
    if (exit.code === null) throw failure(`was killed by ${exit.signal}`)
    if (exit.code !== 0) throw failure(`ended with code ${exit.code}`)
    return Buffer.concat(output).toString('utf8')
  } finally {
    if (!hasExited) sendSignal(-pid, 'SIGKILL')
    // A process that left the group could hold the pipes open forever.
    for (const pipe of [stdin, stdout, stderr, resumePipe]) pipe.destroy()
  }
}

const unstartable = 'cannot be started: is it installed, and does its folder exist?'

function rewardFailed(message: string, cause?: unknown): MillraceError {
  return new MillraceError('reward_failed', message, { cause })
}
