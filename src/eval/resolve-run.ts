import { hash } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { environmentOf, hasGroupReward, loadEnvironment, type LoadedEnvironment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { priceOf, resolveModelConfig, type ModelConfig } from '../inference/index.ts'
import type { Variables } from '../kit/index.ts'
import type { GroupRules, RunSettings } from '../rollout/index.ts'
import {
  defaultLimits,
  describeIssues,
  limitsSchema,
  samplingSchema,
  type Limits,
  type Sampling,
} from '../schema/index.ts'
import { toolFormatNames, type ToolFormatName } from '../tools/index.ts'
import { parseSimulatorOptions } from '../simulator/index.ts'
import { maxWorkers, resolveSupervision, type Supervision } from '../worker/index.ts'
import type { EvaluateOptions, RunOptions } from './evaluation.ts'
import type { Fork } from './replay/fork.ts'
import { choiceOption, numberOption, unfit, wholeOption } from './option-values.ts'

/** Everything that was asked for, with defaults filled in: stored with the run, without secrets. */
export interface RunConfig {
  readonly environment: { readonly name: string; readonly specifier: string | null; readonly options: unknown }
  readonly models: readonly ModelConfig[]
  readonly model: string
  readonly judge: string
  readonly attempts: number
  readonly group: GroupRules
  readonly concurrency: number
  readonly judgeConcurrency: number
  readonly limit: number | null
  readonly limits: Limits
  readonly sampling: Sampling
  readonly seed: number | null
  /** Left out where calls are native. */
  readonly toolFormat?: ToolFormatName
  readonly captureTokens: boolean
  readonly retries: number
  readonly maxCostUsd: number | null
  readonly passThreshold: number
  /** Null where rollouts run on the caller's own thread. */
  readonly workers: number | null
  /** The rollout that this run was forked from, if it was. */
  readonly forkedFrom?: Fork['from']
}

export interface ResolvedRun {
  /** The variables of the process, read once by the caller; everything that is opened uses these. */
  readonly env: Variables
  readonly config: RunConfig
  readonly digest: string
  readonly loaded: LoadedEnvironment
  readonly settings: RunSettings
  readonly supervision: Supervision
}

const resumeRules = ['auto', 'never', 'required'] as const satisfies readonly RunOptions['resume'][]

/** Loads the environment, resolves the models and checks every number, before anything is opened or spent. */
export async function resolveRun(options: EvaluateOptions, env: Variables, signal?: AbortSignal): Promise<ResolvedRun> {
  const loaded =
    typeof options.environment === 'string'
      ? await loadEnvironment(options.environment, options.options ?? {}, { signal })
      : environmentOf(options.environment, options.options ?? {})
  requireFittingWorkers(options, loaded)
  choiceOption('run.resume', options.run?.resume ?? 'auto', resumeRules)
  const concurrency = wholeOption('concurrency', options.concurrency ?? 64, 1)
  const { policy, models, asked } = modelsOf(options, env, concurrency)
  const { environment } = loaded
  const attempts = wholeOption('attempts', options.attempts ?? 1, 1)
  const config: RunConfig = {
    environment: { name: environment.name, specifier: loaded.specifier ?? null, options: loaded.options },
    models,
    model: policy.name,
    judge: options.judge ?? policy.name,
    attempts,
    group: {
      size: attempts,
      policy: environment.groupPolicy ?? 'keep',
      isScored: hasGroupReward(environment),
    },
    concurrency,
    judgeConcurrency: wholeOption('judgeConcurrency', options.judgeConcurrency ?? Math.min(concurrency, 32), 1),
    limit: options.limit === undefined ? null : wholeOption('limit', options.limit, 1),
    limits: limitsOf({ ...defaultLimits, ...environment.limits, ...options.limits }),
    sampling: samplingOf({ ...environment.sampling, ...options.sampling }),
    seed: options.seed === undefined ? null : wholeOption('seed', options.seed),
    ...toolFormatOf(options.toolFormat ?? environment.toolFormat ?? 'native'),
    captureTokens: options.captureTokens ?? false,
    retries: wholeOption('retries', options.retries ?? 2, 0),
    maxCostUsd: options.maxCostUsd === undefined ? null : numberOption('maxCostUsd', options.maxCostUsd, 0),
    passThreshold: numberOption('passThreshold', options.passThreshold ?? 1),
    workers: workerCount(options.workers),
    ...(options.fork && { forkedFrom: options.fork.from }),
  }
  for (const { simulator } of config.models) if (simulator) parseSimulatorOptions(simulator)
  // An environment's own cost limit needs no prices: it must run on a local model that costs nothing, too.
  if (options.maxCostUsd !== undefined || options.limits?.maxCostUsd !== undefined) requirePrices(config)
  return {
    env,
    config,
    digest: digestOf(config),
    loaded,
    supervision: resolveSupervision(options.supervision),
    settings: {
      model: config.model,
      judge: config.judge,
      asked,
      judgeConcurrency: config.judgeConcurrency,
      limits: config.limits,
      sampling: config.sampling,
      captureTokens: config.captureTokens,
      ...(config.toolFormat && { toolFormat: config.toolFormat }),
      // A simulator always answers one conversation alike, so without a seed all attempts at a task would be the same.
      sendSeed: config.seed !== null || policy.simulator !== undefined,
    },
  }
}

/**
 * All named models, with the evaluated one first. Only models that are known to be asked need their key now, as a file of models
 * is for many runs. If another model is asked later, that call fails as its key is not set.
 */
function modelsOf(
  { model: policyModel, models: named, judge, backends, fork }: EvaluateOptions,
  env: Variables,
  maxConcurrency: number,
): { readonly policy: ModelConfig; readonly models: readonly ModelConfig[]; readonly asked: readonly string[] } {
  const resolve = (model: EvaluateOptions['model'], isUnasked = false): ModelConfig =>
    resolveModelConfig({
      model,
      env,
      isUnasked,
      defaults: { maxConcurrency },
      ...(named && { models: named }),
      ...(backends && { standIns: backends }),
    })
  for (const [name, list] of Object.entries(backends ?? {})) {
    if (!Array.isArray(list)) throw unfit(`backends.${name}`, 'a list of backends', list)
  }
  const policy = resolve(policyModel)
  if (judge?.trim() === '') {
    const message = 'the judge has no name. Name a model with --judge (judge), or leave it out: then the policy judges.'
    throw new MillraceError('config_invalid', message)
  }
  const judges = judge === undefined ? [] : [judge]
  const asked = fork?.asked ?? new Set(judges)
  const models = new Map([[policy.name, policy]])
  for (const name of [...Object.keys(named ?? {}), ...judges]) {
    if (!models.has(name)) models.set(name, resolve(name, !asked.has(name)))
  }
  const askedJudges = judges.filter((name) => name !== policy.name && asked.has(name))
  return { policy, models: [...models.values()], asked: [policy.name, ...askedJudges] }
}

function requireFittingWorkers({ workers, backends, supervision }: EvaluateOptions, loaded: LoadedEnvironment): void {
  if (workers !== undefined && (loaded.specifier === undefined || backends)) {
    throw new MillraceError(
      'config_invalid',
      'workers load their environment and their models by themselves: give the environment as a module and leave out backends, or leave out workers',
    )
  }
  if (supervision && workers === undefined) {
    throw new MillraceError(
      'config_invalid',
      'supervision is of workers, and there are none: say how many with --workers (workers)',
    )
  }
}

/** The parts that make two runs the same experiment. Its speed and number of tasks are not among them. */
export function experimentOf(config: RunConfig): Record<string, unknown> {
  const { environment, model, models, judge, attempts, group, limits, sampling, seed, toolFormat, captureTokens } =
    config
  const served = models.map(({ name, upstreamName, backends, simulator, api }) => ({
    name,
    upstreamName,
    urls: backends.map(({ url }) => url),
    simulator,
    api,
  }))
  // A rollout that runs out of these ends without a score: a later sitting may give it more.
  const { wallTimeoutMs: _wallTimeoutMs, tailMs: _tailMs, ...measured } = limits
  const { name, options, specifier } = environment
  // Relative to the working directory, so that a project that was moved is still the same one.
  const module = specifier === null ? null : relative(process.cwd(), fileURLToPath(specifier))
  return {
    environment: { name, module, options },
    model,
    models: served,
    judge,
    attempts,
    group,
    limits: measured,
    sampling,
    seed,
    ...(toolFormat && { toolFormat }),
    captureTokens,
    ...(config.forkedFrom && { forkedFrom: config.forkedFrom }),
  }
}

function digestOf(config: RunConfig): string {
  return hash('sha256', JSON.stringify(experimentOf(config))).slice(0, 16)
}

/**
 * A limit in dollars needs prices, or it would never hold. All models need one: any may be asked, by a judge or a child, and then
 * the cost of that rollout would be unknown.
 */
function requirePrices({ models, model }: RunConfig): void {
  const unpriced = models.find(
    ({ name, upstreamName, price, simulator }) => !price && !simulator && !priceOf(upstreamName ?? name),
  )
  if (!unpriced) return
  // The flags set the price of the policy only.
  const how = unpriced.name === model ? '--price.input and --price.output (price in its config)' : 'price in its config'
  throw new MillraceError(
    'config_invalid',
    `a cost limit needs prices, and none is known for ${unpriced.name}; give it one with ${how}, or leave out the limit`,
  )
}

function workerCount(workers: EvaluateOptions['workers']): number | null {
  if (workers === undefined) return null
  if (workers === 'auto') return Math.min(availableParallelism(), maxWorkers)
  if (workers <= maxWorkers) return wholeOption('workers', workers, 1)
  throw new MillraceError('config_invalid', `there can be at most ${maxWorkers} workers, not ${workers}`)
}

function toolFormatOf(name: string): Pick<RunConfig, 'toolFormat'> {
  if (name === 'native') return {}
  const toolFormat = toolFormatNames.find((known) => known === name)
  if (toolFormat) return { toolFormat }
  const known = ['native', ...toolFormatNames].join(', ')
  throw new MillraceError('config_invalid', `there is no tool format "${name}"; there are: ${known}`)
}

function limitsOf(limits: Limits): Limits {
  const checked = limitsSchema.safeParse(limits)
  if (!checked.success) {
    throw new MillraceError('config_invalid', `limits do not fit: ${describeIssues(checked.error.issues)}`)
  }
  if (limits.tailMs >= limits.wallTimeoutMs) {
    // A short wall limit still leaves a fifth of itself to reward and teardown.
    return { ...limits, tailMs: limits.wallTimeoutMs / 5 }
  }
  return limits
}

function samplingOf(sampling: Sampling): Sampling {
  const checked = samplingSchema.safeParse(sampling)
  if (checked.success) return checked.data
  throw new MillraceError('config_invalid', `sampling does not fit: ${describeIssues(checked.error.issues)}`)
}
