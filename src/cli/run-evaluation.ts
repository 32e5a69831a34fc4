import type { Evaluation, Progress, RunInfo, Summary } from '../eval/index.ts'
import type { EvalOutput } from './eval-output/eval-output.ts'
import { exitCodes, type ExitCode } from './exit-codes.ts'
import { formatCount } from './format/count.ts'
import { shellQuote } from './format/shell-quote.ts'
import { Interrupts } from './interrupts.ts'
import type { CommandIo } from './io.ts'

/** Follows a run to its end: shows it, passes on Ctrl-C, and says how to go on where it is not complete. */
export async function runEvaluation(options: {
  readonly evaluation: Evaluation
  readonly output: EvalOutput
  readonly io: CommandIo
  /** The words after `millrace eval`, for the command that continues the run. */
  readonly words: readonly string[]
}): Promise<ExitCode> {
  const { evaluation, output, io } = options
  using interrupts = new Interrupts(io.events, {
    drain: () => {
      evaluation.drain()
      output.note(drainNotice(evaluation.progress()))
    },
    stop: () => {
      output.quiet()
      output.note('Stopping. What has ended is kept.')
      evaluation.stop()
    },
  })
  const onReaderGone = (): void => evaluation.stop()
  io.stdout.readerGone.addEventListener('abort', onReaderGone, { once: true })
  let info: RunInfo | undefined
  try {
    const started = evaluation.started.then((value) => {
      info = value
      output.start(value)
    })
    // The iteration fails with the same error; waiting for it there leaves one place that reports it.
    started.catch(() => {})
    for await (const record of evaluation) await output.rollout(record)
    await started
    const summary = await evaluation.summary()
    output.end(summary)
    if (summary.end !== 'complete') output.note(resumeNotice(summary, options.words, io))
    return exitCode(summary, interrupts.exitCode)
  } catch (error) {
    output.quiet()
    if (info) output.note(`What has ended is kept. Continue with: ${resumeCommand(info.name, options.words)}`)
    throw error
  } finally {
    io.stdout.readerGone.removeEventListener('abort', onReaderGone)
  }
}

/** Complete and every rollout scored is 0; see the help of `eval` for the rest. */
function exitCode(summary: Summary, interrupted: ExitCode | undefined): ExitCode {
  if (summary.end === 'complete') return summary.scored < summary.rollouts ? exitCodes.unscored : exitCodes.ok
  if (summary.end === 'max_cost') return exitCodes.unscored
  return interrupted ?? exitCodes.failed
}

function drainNotice(progress: Progress): string {
  return `Draining: ${formatCount(progress.active)} running rollouts may end, nothing new starts. Ctrl-C again stops them.`
}

const endings: Readonly<Record<Exclude<Summary['end'], 'complete'>, string>> = {
  drained: 'The run was drained before its end',
  stopped: 'The run was stopped before its end',
  max_cost: 'The run has spent its --max-cost',
  failed: 'The run failed before its end',
}

function resumeNotice(summary: Summary, words: readonly string[], io: CommandIo): string {
  const ending = summary.end === 'complete' ? '' : endings[summary.end]
  const kept = `${formatCount(summary.rollouts)} ended rollouts are kept`
  return `${ending}; ${kept}. Continue with:\n  ${io.stderr.style.accent(resumeCommand(summary.run, words))}`
}

/** The same command with the run's name, so that it continues this run and no other. */
function resumeCommand(run: string, words: readonly string[]): string {
  const kept = words.filter((word, index) => {
    const previous = words[index - 1]
    if (previous === '--run' || (previous === '--resume' && word === run)) return false
    return word !== '--new' && !/^--(run|resume)(=|$)/.test(word)
  })
  return `millrace eval ${shellQuote([...kept, '--run', run])}`
}
