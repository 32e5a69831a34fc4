import { MillraceError } from '../../errors/index.ts'
import type { EvaluateOptions, RunOptions } from '../../eval/index.ts'
import type { Limits, Sampling } from '../../schema/index.ts'
import type { FlagValues, Invocation } from '../command-line/command.ts'
import type { evalFlags } from './eval-flags.ts'
import { modelFromFlags } from './_model-from-flags.ts'
import { readModelsFile } from './_models-file.ts'
import { runsRoot } from '../runs/stored-run.ts'
import type { Variables } from '../../kit/index.ts'

type EvalInvocation = Invocation<typeof evalFlags>
type EvalFlags = FlagValues<typeof evalFlags>

/** The options of the library's `evaluate` for the flags of `millrace eval`. */
export async function evaluateOptions(
  invocation: EvalInvocation,
  io: { readonly cwd: string; readonly env: Variables },
): Promise<EvaluateOptions> {
  const { flags, prefixed } = invocation
  const [environment] = invocation.arguments
  if (environment === undefined || flags.model === undefined) {
    throw new MillraceError('usage', 'which model? Add -m <name>; -m sim is built in and needs no key')
  }
  const models = flags.models === undefined ? {} : await readModelsFile(flags.models, io.cwd)
  return {
    environment,
    ...(prefixed['env'] && { options: prefixed['env'] }),
    model: modelFromFlags({ name: flags.model, flags, simulator: prefixed['sim'] ?? {}, models, env: io.env }),
    models,
    ...(flags.judge !== undefined && { judge: flags.judge }),
    attempts: flags.attempts ?? 1,
    concurrency: flags.concurrency ?? 64,
    ...(flags['judge-concurrency'] !== undefined && { judgeConcurrency: flags['judge-concurrency'] }),
    ...(flags.limit !== undefined && { limit: flags.limit }),
    limits: limits(flags),
    sampling: sampling(flags, prefixed['sampling']),
    ...(flags.seed !== undefined && { seed: flags.seed }),
    ...(flags['tool-format'] && { toolFormat: flags['tool-format'] }),
    ...(flags.tokens && { captureTokens: true }),
    ...(flags.retries !== undefined && { retries: flags.retries }),
    ...(flags['max-cost'] !== undefined && { maxCostUsd: flags['max-cost'] }),
    ...(flags['pass-threshold'] !== undefined && { passThreshold: flags['pass-threshold'] }),
    ...(flags.workers !== undefined && { workers: workers(flags.workers) }),
    ...supervision(flags),
    ...(flags['no-preflight'] && { preflight: false }),
    run: run(flags, io),
  }
}

function workers(text: string): number | 'auto' {
  if (text === 'auto') return text
  const count = Number(text)
  if (Number.isSafeInteger(count) && count >= 1) return count
  throw new MillraceError('usage', `--workers is a whole number of at least 1, or auto, not ${text}`)
}

const bytesPerMb = 1024 * 1024

function supervision(flags: EvalFlags): Pick<EvaluateOptions, 'supervision'> {
  const timeout = flags['worker-timeout']
  const age = flags['max-worker-age']
  const memory = flags['max-worker-memory']
  if (timeout === undefined && age === undefined && memory === undefined) return {}
  return {
    supervision: {
      ...(timeout !== undefined && { replaceAfterMs: timeout }),
      ...(age !== undefined && { maxAgeMs: age }),
      ...(memory !== undefined && { maxMemoryBytes: memory * bytesPerMb }),
    },
  }
}

function limits(flags: EvalFlags): Partial<Limits> {
  return {
    ...(flags['max-turns'] !== undefined && { maxTurns: flags['max-turns'] }),
    ...(flags['max-rollout-tokens'] !== undefined && { maxTokens: flags['max-rollout-tokens'] }),
    ...(flags['max-rollout-cost'] !== undefined && { maxCostUsd: flags['max-rollout-cost'] }),
    ...(flags.timeout !== undefined && { timeoutMs: flags.timeout }),
    ...(flags['wall-timeout'] !== undefined && { wallTimeoutMs: flags['wall-timeout'] }),
  }
}

function sampling(flags: EvalFlags, extra: Readonly<Record<string, unknown>> | undefined): Sampling {
  return {
    ...(flags.temperature !== undefined && { temperature: flags.temperature }),
    ...(flags['top-p'] !== undefined && { topP: flags['top-p'] }),
    ...(flags['max-tokens'] !== undefined && { maxTokens: flags['max-tokens'] }),
    ...(flags.stop && { stop: [...flags.stop] }),
    ...(flags['reasoning-effort'] !== undefined && { reasoningEffort: flags['reasoning-effort'] }),
    ...(extra && { extra: extra as NonNullable<Sampling['extra']> }),
  }
}

function run(flags: EvalFlags, io: Parameters<typeof runsRoot>[1]): RunOptions {
  if (flags.new && flags.resume !== undefined) {
    throw new MillraceError('usage', '--new starts a run and --resume continues one; give only one of them')
  }
  if (flags.new && flags['retry-failed']) {
    throw new MillraceError('usage', '--retry-failed needs a run to continue; leave out --new')
  }
  const resumed = flags.resume === '' ? undefined : flags.resume
  if (resumed !== undefined && flags.run !== undefined && resumed !== flags.run) {
    throw new MillraceError('usage', `--resume names the run ${resumed} and --run the run ${flags.run}; give one name`)
  }
  const name = resumed ?? flags.run
  runsRoot(flags.runs, io)
  return {
    ...(flags.runs !== undefined && { root: flags.runs }),
    ...(name !== undefined && { name }),
    resume: flags.new ? 'never' : flags.resume === undefined ? 'auto' : 'required',
    ...(flags['retry-failed'] && { retryFailed: true }),
  }
}
