import { MillraceError } from '../../../errors/index.ts'
import { evaluate, type Evaluation, type Progress, type RunInfo, type Summary } from '../../../eval/index.ts'
import { offAbort, onAbort, settleHeapForRollouts } from '../../../kit/index.ts'
import { type BlockedLoop, loopLag } from '../../../rollout/index.ts'
import { rolloutsWaiting } from '../../../tools/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { type ExitCode, exitCodes } from '../../terminal/exit-codes.ts'
import { formatCount, formatDuration, formatQuantity, shellQuote, workerName } from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { exitNotice, Interrupts, UnhandledErrors } from '../../terminal/signals.ts'
import { printableLine } from '../../terminal/text.ts'
import type { EvalFlags } from './eval-command.ts'
import { type EvalOutput, JsonOutput, PlainOutput } from './eval-output.ts'
import { evalOptions } from './eval-options.ts'
import { LiveOutput } from './live-output.ts'
import { parkedCount, startupText } from './progress-lines.ts'

export async function runEval(
  invocation: Invocation<EvalFlags>,
  io: CommandIo,
  start: typeof evaluate = evaluate,
): Promise<ExitCode> {
  settleHeapForRollouts()
  const evaluation = start(await evalOptions(invocation, io))
  using output = openOutput(invocation.flags, io, evaluation)
  const howToGoOn =
    'Ended rollouts are kept, and the same command continues the run; with --workers only one rollout is lost.'
  using _exit = exitNotice(io, howToGoOn)
  return await runEvaluation({ evaluation, output, io, args: invocation.args })
}

export function openOutput(
  flags: { readonly json?: true; readonly quiet?: true },
  io: CommandIo,
  evaluation: Evaluation,
): EvalOutput {
  const quiet = flags.quiet === true
  if (flags.json) return new JsonOutput(io, evaluation, { quiet })
  const isLive = io.stdout.isTTY && io.env['TERM'] !== 'dumb' && !quiet
  return isLive ? new LiveOutput(io, evaluation) : new PlainOutput(io, evaluation, { quiet })
}

/** Follows a run to its end: shows it, passes on Ctrl-C, and says how to continue if it is not complete. */
export async function runEvaluation(options: {
  readonly evaluation: Evaluation
  readonly output: EvalOutput
  readonly io: CommandIo
  readonly args: readonly string[]
  readonly command?: 'eval' | 'fork'
}): Promise<ExitCode> {
  const { evaluation, output, io, command = 'eval' } = options
  const resume = (run: string, args = options.args): string =>
    io.stderr.style.accent(`${io.program} ${command} ${shellQuote(resumeArgs(run, args))}`)
  let info: RunInfo | undefined
  const stop = (note: string): void => {
    output.quiet()
    output.note(note)
    evaluation.stop()
  }
  using interrupts = new Interrupts(io.events, {
    drain: () => {
      // Before the first rollout there is nothing to wait for.
      if (!info) return stop(`Stopping; it was still ${startupText(evaluation.progress())}.`)
      evaluation.drain()
      // If the terminal is gone, nobody can press Ctrl-C again.
      const again = interrupts.exitCode === exitCodes.hungUp ? 'SIGTERM' : 'Ctrl-C again'
      return output.note(drainNotice(evaluation.progress(), again))
    },
    stop: () => stop('Stopping. Ended rollouts are kept.'),
  })
  using unhandled = new UnhandledErrors(io.events, {
    onFirstRejection: (text) => output.note(text),
    onException: () => stop('Stopping after an error outside of any rollout.'),
  })
  using _blocked = reportBlockedLoops((text) => output.note(text))
  const readerListener = { handleEvent: () => evaluation.stop() }
  onAbort(io.stdout.readerGone, readerListener)
  try {
    const started = evaluation.started.then((value) => {
      info = value
      output.start(value)
    })
    // The iteration below fails with the same error, and is the one place that reports it.
    started.catch(() => {})
    for await (const record of evaluation) await output.rollout(record)
    await started
    const summary = await evaluation.summary()
    if (unhandled.exception) throw unhandled.exception
    output.end(summary)
    if (unhandled.rejections > 1)
      output.note(`${formatCount(unhandled.rejections)} promise rejections were not handled.`)
    const next = nextStep(summary, options.args, resume)
    if (next !== undefined) output.note(next)
    return exitCode(summary, interrupts.exitCode)
  } catch (error) {
    output.quiet()
    if (info) {
      if (isContinuable(error)) output.note(`Ended rollouts are kept. Continue with:\n  ${resume(info.name)}`)
    } else if (interrupts.exitCode !== undefined && !unhandled.exception) {
      output.note('Stopped before the first rollout: nothing was run.')
      return interrupts.exitCode
    }
    throw unhandled.exception ?? error
  } finally {
    offAbort(io.stdout.readerGone, readerListener)
  }
}

/** After other errors there is nothing to continue, or continuing would fail in the same way. */
function isContinuable(error: unknown): boolean {
  return !(error instanceof MillraceError) || (error.code !== 'run_mismatch' && error.code !== 'run_gone')
}

/** The exit code: 0 if the run is complete and every rollout was scored; see the help of `eval` for the others. */
function exitCode(summary: Summary, interrupted: ExitCode | undefined): ExitCode {
  const { end, scored, rollouts, missingTasks } = summary
  if (end === 'complete') return scored < rollouts || missingTasks > 0 ? exitCodes.unscored : exitCodes.ok
  if (end === 'max_cost') return exitCodes.unscored
  return interrupted ?? exitCodes.failed
}

function drainNotice({ active, models, servers }: Progress, again: string): string {
  const parked = parkedCount(models) + rolloutsWaiting(servers)
  const waiting =
    parked > 0
      ? ` ${formatCount(parked)} wait for an overloaded or unreachable backend or tool server; without its recovery they stay unfinished and can be continued later.`
      : ''
  return `Draining: ${formatQuantity(active, 'running rollout')} may end, no new one starts.${waiting} ${again} stops them.`
}

const endings: Readonly<Record<Exclude<Summary['end'], 'complete'>, string>> = {
  drained: 'The run was drained before its end',
  stopped: 'The run was stopped before its end',
  max_cost: 'The run has spent its --max-cost',
  failed: 'The run failed before its end',
}

/** What to do next, if the run is not complete or some rollouts have no score. */
function nextStep(
  summary: Summary,
  args: readonly string[],
  resume: (run: string, args: readonly string[]) => string,
): string | undefined {
  const unscored = summary.rollouts - summary.scored
  if (summary.end !== 'complete') {
    const kept = `${formatQuantity(summary.rollouts, 'ended rollout')} ${summary.rollouts === 1 ? 'is' : 'are'} kept`
    const isSpent = summary.end === 'max_cost'
    // With the old limit the run would stop again at once.
    const next = isSpent ? [...withoutFlag(args, '--max-cost'), '--max-cost', '<usd>'] : args
    const step = isSpent ? 'With more to spend, continue with' : 'Continue with'
    return `${endings[summary.end]}; ${kept}. ${step}:\n  ${resume(summary.run, next)}`
  }
  if (unscored === 0) return undefined
  const again = resume(summary.run, [...args.filter((arg) => arg !== '--retry-failed'), '--retry-failed'])
  const which = unscored === 1 ? 'it' : 'them'
  return `${formatQuantity(unscored, 'rollout')} ended without a score. With the cause corrected, run ${which} again:\n  ${again}`
}

/** The arguments that continue this run and no other. */
function resumeArgs(run: string, args: readonly string[]): readonly string[] {
  const kept = withoutFlag(args, '--run').filter((arg, index, left) => {
    if (left[index - 1] === '--resume' && arg === run) return false
    return arg !== '--new' && !/^--resume(=|$)/.test(arg)
  })
  return [...kept, '--run', run]
}

function withoutFlag(args: readonly string[], flag: string): string[] {
  return args.filter((arg, index) => args[index - 1] !== flag && arg !== flag && !arg.startsWith(`${flag}=`))
}

/** How many functions are reported. More of them are one pattern, and `millrace doctor` lists them all. */
const maxReported = 5

/** Reports each function that blocked an event loop, once. Listens until disposed. */
export function reportBlockedLoops(report: (text: string) => void): Disposable {
  const reported = new Set<string>()
  return loopLag.subscribe((blocked) => {
    const { blockedBy = 'an unknown function' } = blocked
    // The line depends on when the stack was taken; the function is the same.
    const key = blockedBy.replace(/:\d+\)$/, ')')
    if (reported.size === maxReported || reported.has(key)) return
    reported.add(key)
    const isLast = reported.size === maxReported
    report(
      `${sentence(blockedBy, blocked)}${isLast ? ' Further functions are not reported here: see millrace doctor.' : ''}`,
    )
  })
}

function sentence(blockedBy: string, { worker, lagMs, component }: BlockedLoop): string {
  const where = worker === null ? 'the loop' : `the loop of ${workerName(worker)}`
  const step = component === undefined ? 'Make it asynchronous, or an offload(…) reward.' : 'Make it offload(…).'
  return `${printableLine(blockedBy)} blocked ${where}, and every rollout on it, for ${formatDuration(lagMs)} or more. ${step}`
}
