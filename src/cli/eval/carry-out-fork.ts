import { forkRollout, type ForkOptions, type RunOptions } from '../../eval/index.ts'
import { settleHeapForRollouts } from '../../kit/index.ts'
import { openOutput } from './carry-out-eval.ts'
import type { FlagValues, Invocation } from '../command-line/command.ts'
import type { ExitCode } from '../process/exit-codes.ts'
import { exitNotice } from '../process/exit-notice.ts'
import { usageError } from '../command-line/flag-value.ts'
import type { forkFlags } from './fork-flags.ts'
import type { CommandIo } from '../process/io.ts'
import { modelFromFlags } from './_model-from-flags.ts'
import { readModelsFile } from './_models-file.ts'
import { runEvaluation } from './_run-evaluation.ts'
import { findRolloutToRepeat } from '../runs/find-rollout-to-repeat.ts'
import { locateRun, readRun, runsRoot } from '../runs/stored-run.ts'

type ForkInvocation = Invocation<typeof forkFlags>

/** Carries out `millrace fork`: from its flags to its exit code. */
export async function carryOutFork(invocation: ForkInvocation, io: CommandIo): Promise<ExitCode> {
  settleHeapForRollouts()
  const [name = ''] = invocation.arguments
  const root = runsRoot(invocation.flags.runs, io)
  const options = await forkOptions(invocation, root, io)
  const found = await locateRun(name, root, io)
  const evaluation = await readRun(found, io, (reader) => {
    const rollout = findRolloutToRepeat(options.rollout, reader, { found, stderr: io.stderr })
    return forkRollout(reader, { ...options, rollout })
  })
  using output = openOutput(invocation.flags, io, evaluation)
  using _exit = exitNotice(io, 'What has ended is kept, and the same command goes on.')
  return await runEvaluation({ evaluation, output, io, words: invocation.words, command: 'fork' })
}

async function forkOptions(invocation: ForkInvocation, root: string, io: CommandIo): Promise<ForkOptions> {
  const { flags, prefixed } = invocation
  const [, rollout = ''] = invocation.arguments
  const { turn, system, prompt, samples, environment, concurrency } = flags
  if (turn === undefined) {
    throw usageError('after which turn? Add --turn <count>; --turn 0 repeats none and starts the task again')
  }
  const simulator = prefixed['sim'] ?? {}
  if (flags.model === undefined && Object.keys(simulator).length > 0) {
    throw usageError(
      `--sim.${Object.keys(simulator)[0]} is an option of the simulator; say that it is to go on with -m sim`,
    )
  }
  const models = flags.models === undefined ? {} : await readModelsFile(flags.models, io.cwd)
  return {
    rollout,
    turn,
    ...(flags.model !== undefined && {
      model: modelFromFlags({ name: flags.model, flags, simulator, models, env: io.env }),
    }),
    models,
    ...(system !== undefined && { system }),
    ...(prompt !== undefined && { prompt }),
    ...(samples !== undefined && { samples }),
    ...(environment !== undefined && { environment }),
    ...(prefixed['env'] && { options: prefixed['env'] }),
    ...(concurrency !== undefined && { concurrency }),
    ...(flags['reuse-tools'] && { reusesTools: true }),
    ...(flags['no-preflight'] && { preflight: false }),
    run: runOptions(flags, root),
  }
}

/** The options of the new run, which is put beside the run it was forked from. */
function runOptions(flags: FlagValues<typeof forkFlags>, root: string): RunOptions {
  if (flags.new && flags['retry-failed']) throw usageError('--retry-failed needs a run to continue; leave out --new')
  return {
    root,
    ...(flags.run !== undefined && { name: flags.run }),
    resume: flags.new ? 'never' : 'auto',
    ...(flags['retry-failed'] && { retryFailed: true }),
  }
}
