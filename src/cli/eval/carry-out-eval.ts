import type { EvaluateOptions, Evaluation } from '../../eval/index.ts'
import { settleHeapForRollouts } from '../../kit/index.ts'
import type { Invocation } from '../command-line/command.ts'
import type { evalFlags } from './eval-flags.ts'
import type { EvalOutput } from './output/eval-output.ts'
import { JsonOutput } from './output/json-output.ts'
import { LiveOutput } from './output/live-output.ts'
import { PlainOutput } from './output/plain-output.ts'
import { evaluateOptions } from './evaluate-options.ts'
import type { ExitCode } from '../process/exit-codes.ts'
import { exitNotice } from '../process/exit-notice.ts'
import type { CommandIo } from '../process/io.ts'
import { runEvaluation } from './_run-evaluation.ts'

export type Evaluate = (options: EvaluateOptions) => Evaluation

/** Carries out `millrace eval`: from its flags to its exit code. */
export async function carryOutEval(
  invocation: Invocation<typeof evalFlags>,
  io: CommandIo,
  evaluate: Evaluate,
): Promise<ExitCode> {
  settleHeapForRollouts()
  const evaluation = evaluate(await evaluateOptions(invocation, io))
  using output = openOutput(invocation.flags, io, evaluation)
  using _exit = exitNotice(
    io,
    'What has ended is kept, and the same command goes on; with --workers it costs one rollout.',
  )
  return await runEvaluation({ evaluation, output, io, words: invocation.words })
}

/** The output that the flags and the terminal ask for. */
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
