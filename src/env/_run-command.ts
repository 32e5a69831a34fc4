import { MillraceError } from '../errors/index.ts'
import { timerMs } from '../kit/index.ts'
import { letThrough, ProcessGuard, refusedAtGate, spawnGated, type ServerExit } from '../tools/index.ts'

const maxOutputBytes = 1024 * 1024
const keptErrorChars = 2_000
/** How long pipes may stay open after the program has ended. A process that left its group may hold them open for longer. */
const pipeLimitMs = 1_000

export interface Command {
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
export async function runCommand(command: Command): Promise<string> {
  const { file, args, cwd, env, signal } = command
  signal.throwIfAborted()
  const program = await spawnGated({ command: file, args, cwd }, env).catch((error: NodeJS.ErrnoException) => {
    throw rewardFailed(`${file} ${error.code === 'ENOENT' ? unstartable : error.message}`, error)
  })
  const { pid, stdin, stdout, stderr, gate } = program
  const guard = ProcessGuard.ofThisThread
  const result = Promise.withResolvers<string>()
  const output: Buffer[] = []
  let outputBytes = 0
  let errorText = ''
  let exit: ServerExit | undefined
  let isOver = false
  let lingering: NodeJS.Timeout | undefined
  const end = (settle: () => void): void => {
    if (isOver) return
    isOver = true
    clearTimeout(timer)
    clearTimeout(lingering)
    signal.removeEventListener('abort', onAbort)
    if (!exit) killGroup(pid)
    // A process that left the group could hold the pipes open forever.
    for (const pipe of [stdin, stdout, stderr, gate]) pipe.destroy()
    settle()
  }
  const fail = (what: string, cause?: unknown): void => {
    const said = errorText.trim() === '' ? '' : `; its last words were: ${errorText.trim()}`
    end(() => result.reject(rewardFailed(`${file} ${what}${said}`, cause)))
  }
  const onAbort = (): void => end(() => result.reject(signal.reason))
  const onEnd = (ended: ServerExit): void => {
    const { code } = ended
    if (refusedAtGate(ended, errorText)) end(() => result.reject(rewardFailed(`${file} ${unstartable}`)))
    else if (code !== 0) fail(code === null ? `was killed by ${ended.signal}` : `ended with code ${code}`)
    else end(() => result.resolve(Buffer.concat(output).toString('utf8')))
  }
  signal.addEventListener('abort', onAbort)
  const timeoutMs = timerMs(command.timeoutMs)
  const timer = setTimeout(() => fail(`took longer than ${timeoutMs / 1_000} s (timeoutMs)`), timeoutMs)
  stdout.on('data', (chunk: Buffer) => {
    outputBytes += chunk.length
    output.push(chunk)
    if (outputBytes > maxOutputBytes) fail(`printed more than ${maxOutputBytes / 1024} KB`)
  })
  stderr.setEncoding('utf8').on('data', (text: string) => {
    errorText = (errorText + text).slice(-keptErrorChars)
  })
  void program.exited.then((ended) => {
    exit = ended
    // Processes that outlive the program must not delay the end, which waits for the last output.
    killGroup(pid)
    void guard.forget(pid)
    if (isOver) return
    // Output that is already in the pipe is read before an immediate runs, even if the event loop was held up.
    lingering = setTimeout(() => setImmediate(onEnd, ended), pipeLimitMs)
    void program.closed.then(() => onEnd(ended))
  })
  guard.watch(pid).then(
    () => letThrough(program),
    (error: unknown) => fail(`was not started: ${MillraceError.from(error, 'reward_failed').rawMessage}`, error),
  )
  // A program need not read its input, so errors here do not matter; its output decides.
  stdin.end(command.input)
  return await result.promise
}

const unstartable = 'cannot be started: is it installed, and does its folder exist?'

function rewardFailed(message: string, cause?: unknown): MillraceError {
  return new MillraceError('reward_failed', message, { cause })
}

/** Kills all processes that are left in the group; the program itself may have ended. */
function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL')
  } catch {
    // The group is empty.
  }
}
