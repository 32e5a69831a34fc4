import { MillraceError } from '../../errors/index.ts'
import type { Evaluation, Progress, RunInfo, Summary } from '../../eval/index.ts'
import { tellOfBlockedLoops } from './_blocked-loops.ts'
import type { EvalOutput } from './output/eval-output.ts'
import { parkedCount } from './output/progress-lines.ts'
import { startupText } from './output/startup-text.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import { Interrupts } from '../process/interrupts.ts'
import type { CommandIo } from '../process/io.ts'
import { resumeCommand, withoutFlag } from './_resume-command.ts'
import { StrayErrors } from '../process/stray-errors.ts'
import { rolloutsWaiting } from '../../tools/index.ts'

/** Follows a run to its end: shows it, passes on Ctrl-C, and says how to continue if it is not complete. */
export async function runEvaluation(options: {
  readonly evaluation: Evaluation
  readonly output: EvalOutput
  readonly io: CommandIo
  /** The words after the command's name, for the command that continues the run. */
  readonly words: readonly string[]
  /** The command to continue with; `eval` if not given. */
  readonly command?: 'eval' | 'fork'
}): Promise<ExitCode> {
  const { evaluation, output, io } = options
  const resume = (run: string, words = options.words): string =>
    io.stderr.style.accent(
      resumeCommand(run, { program: io.program, words, ...(options.command && { command: options.command }) }),
    )
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
    stop: () => stop('Stopping. What has ended is kept.'),
  })
  using stray = new StrayErrors(io.events, {
    onFirstRejection: (text) => output.note(text),
    onException: () => stop('Stopping because of an error outside of any rollout.'),
  })
  using _blocked = tellOfBlockedLoops((text) => output.note(text))
  const onReaderGone = (): void => evaluation.stop()
  io.stdout.readerGone.addEventListener('abort', onReaderGone, { once: true })
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
    if (stray.exception) throw stray.exception
    output.end(summary)
    for (const note of closingNotes(summary, { words: options.words, resume, stray })) output.note(note)
    return exitCode(summary, interrupts.exitCode)
  } catch (error) {
    output.quiet()
    if (info) {
      if (isContinuable(error)) output.note(`What has ended is kept. Continue with:\n  ${resume(info.name)}`)
    } else if (interrupts.exitCode !== undefined && !stray.exception) {
      output.note('Stopped before the first rollout: nothing was run.')
      return interrupts.exitCode
    }
    throw stray.exception ?? error
  } finally {
    io.stdout.readerGone.removeEventListener('abort', onReaderGone)
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
      ? ` ${formatCount(parked)} wait for a backend or tool server that is overloaded or gone; if it stays so, they are left for later.`
      : ''
  return `Draining: ${formatQuantity(active, 'running rollout')} may end, nothing new starts.${waiting} ${again} stops them.`
}

const endings: Readonly<Record<Exclude<Summary['end'], 'complete'>, string>> = {
  drained: 'The run was drained before its end',
  stopped: 'The run was stopped before its end',
  max_cost: 'The run has spent its --max-cost',
  failed: 'The run failed before its end',
}

function closingNotes(
  summary: Summary,
  {
    words,
    resume,
    stray,
  }: {
    words: readonly string[]
    resume: (run: string, words?: readonly string[]) => string
    stray: StrayErrors
  },
): readonly string[] {
  const notes: string[] = []
  if (stray.rejections > 1) notes.push(`${formatCount(stray.rejections)} rejected promises were handled by nobody.`)
  const unscored = summary.rollouts - summary.scored
  if (summary.end !== 'complete') {
    const kept = `${formatQuantity(summary.rollouts, 'ended rollout')} ${summary.rollouts === 1 ? 'is' : 'are'} kept`
    const isSpent = summary.end === 'max_cost'
    // With the old limit the run would stop again at once.
    const next = isSpent ? [...withoutFlag(words, '--max-cost'), '--max-cost', '<usd>'] : words
    const step = isSpent ? 'With more to spend, continue with' : 'Continue with'
    notes.push(`${endings[summary.end]}; ${kept}. ${step}:\n  ${resume(summary.run, next)}`)
  } else if (unscored > 0) {
    const again = resume(summary.run, [...words.filter((word) => word !== '--retry-failed'), '--retry-failed'])
    const which = unscored === 1 ? 'it' : 'them'
    notes.push(
      `${formatQuantity(unscored, 'rollout')} ended without a score. With the cause corrected, run ${which} again:\n  ${again}`,
    )
  }
  return notes
}
