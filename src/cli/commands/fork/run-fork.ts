import { forkRollout, type ForkOptions } from '../../../eval/index.ts'
import { settleHeapForRollouts } from '../../../kit/index.ts'
import { openOutput, runEvaluation } from '../eval/run-eval.ts'
import type { Invocation } from '../../command-line/command.ts'
import { definedFields } from '../../command-line/flags.ts'
import type { ExitCode } from '../../terminal/exit-codes.ts'
import { exitNotice } from '../../terminal/signals.ts'
import { usageError } from '../../command-line/flag-value.ts'
import type { forkFlags } from './fork-command.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { modelFromFlags, readModelsFile } from '../eval/options-from-flags.ts'
import { findRolloutToRepeat } from '../../stored-runs/find-rollout.ts'
import { locateRun, readRun, runsRoot } from '../../stored-runs/stored-run.ts'

type ForkInvocation = Invocation<typeof forkFlags>

export async function runFork(invocation: ForkInvocation, io: CommandIo): Promise<ExitCode> {
  settleHeapForRollouts()
  const [name = ''] = invocation.arguments
  const root = runsRoot(invocation.flags.runs, io)
  const options = await forkOptions(invocation, root, io)
  const found = await locateRun(name, root, io)
  const evaluation = await readRun(found, (reader) => {
    const rollout = findRolloutToRepeat(options.rollout, reader, { found, stderr: io.stderr })
    return forkRollout(reader, { ...options, rollout })
  })
  using output = openOutput(invocation.flags, io, evaluation)
  using _exit = exitNotice(io, 'Ended rollouts are kept, and the same command continues the run.')
  return await runEvaluation({ evaluation, output, io, args: invocation.args, command: 'fork' })
}

async function forkOptions(invocation: ForkInvocation, root: string, io: CommandIo): Promise<ForkOptions> {
  const { flags, prefixed } = invocation
  const [, rollout = ''] = invocation.arguments
  const { turn, system, prompt, samples, environment, concurrency } = flags
  if (flags.new && flags['retry-failed']) throw usageError('--retry-failed needs a run to continue; leave out --new')
  if (turn === undefined) {
    throw usageError('after which turn? Add --turn <count>; --turn 0 repeats no turn and starts the task again')
  }
  const simulator = prefixed['sim'] ?? {}
  const [option] = Object.keys(simulator)
  if (flags.model === undefined && option !== undefined) {
    throw usageError(`--sim.${option} is an option of the simulator; add -m sim to continue with the simulator`)
  }
  const models = flags.models === undefined ? {} : await readModelsFile(flags.models, io.cwd)
  return {
    rollout,
    turn,
    models,
    ...definedFields({
      model: flags.model && modelFromFlags({ name: flags.model, flags, simulator, models, env: io.env }),
      system,
      prompt,
      samples,
      environment,
      options: prefixed['env'],
      concurrency,
      reusesTools: flags['reuse-tools'],
    }),
    ...(flags['no-preflight'] && { preflight: false }),
    // The new run is put beside the run it was forked from.
    run: {
      root,
      resume: flags.new ? 'never' : 'auto',
      ...definedFields({ name: flags.run, retryFailed: flags['retry-failed'] }),
    },
  }
}
