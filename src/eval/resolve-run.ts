import { availableParallelism } from 'node:os'
import type { z } from 'zod'
import { agentNamed, namedAgentOf } from '../agents/index.ts'
import { environmentOf, hasGroupReward, type LoadedEnvironment, loadEnvironment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { type ModelConfig, priceOf, resolveModelConfig } from '../inference/index.ts'
import type { Variables } from '../kit/index.ts'
import type { RunSettings } from '../rollout/index.ts'
import { defaultLimits, describeIssues, type Limits, limitsSchema, safeParse, samplingSchema } from '../schema/index.ts'
import { parseSimulatorOptions } from '../simulator/index.ts'
import { maxWorkers, resolveSupervision, type Supervision } from '../worker/index.ts'
import { experimentDigest, moduleName } from './experiment.ts'
import type { EvaluateOptions } from './options.ts'
import { type RunConfig, runSettings } from './run-config.ts'
import { toolFormatNames } from '../tool-formats/index.ts'

export interface ResolvedRun {
  /** The variables of the process, read once by the caller; everything that is opened uses these. */
  readonly env: Variables
  readonly config: RunConfig
  readonly digest: string
  readonly loaded: LoadedEnvironment
  readonly settings: RunSettings
  readonly supervision: Supervision
}

/** Loads the environment and resolves the models, before anything is opened or spent. */
export async function resolveRun(options: EvaluateOptions, env: Variables, signal?: AbortSignal): Promise<ResolvedRun> {
  const loaded =
    typeof options.environment === 'string'
      ? await loadEnvironment(options.environment, options.options ?? {}, { signal })
      : environmentOf(options.environment, options.options ?? {})
  requireFittingWorkers(options, loaded)
  const concurrency = options.concurrency ?? 64
  const { policy, models, asked } = runModels(options, env, concurrency)
  const { environment } = loaded
  const attempts = options.attempts ?? 1
  const config: RunConfig = {
    environment: {
      name: environment.name,
      specifier: loaded.specifier ?? null,
      module: loaded.specifier === undefined ? null : moduleName(loaded.specifier),
      options: loaded.options,
      ...(environment.addresses && { addresses: environment.addresses }),
    },
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
    judgeConcurrency: options.judgeConcurrency ?? Math.min(concurrency, 32),
    limit: options.limit ?? null,
    limits: limitsOf({ ...defaultLimits, ...environment.limits, ...options.limits }),
    sampling: fitting(samplingSchema, { ...environment.sampling, ...options.sampling }, 'sampling does not fit'),
    seed: options.seed ?? null,
    ...agentOf(options.agent),
    ...toolFormatOf(options.toolFormat ?? environment.toolFormat ?? 'native'),
    captureTokens: options.captureTokens ?? policy.tokens === 'exact',
    ...(options.maxVersionsBehind !== undefined && { maxVersionsBehind: options.maxVersionsBehind }),
    retries: options.retries ?? 2,
    maxCostUsd: options.maxCostUsd ?? null,
    passThreshold: options.passThreshold ?? 1,
    workers: workerCount(options.workers),
    ...(options.fork && { forkedFrom: options.fork.from }),
  }
  requireTokens(config)
  for (const { simulator } of config.models) if (simulator) parseSimulatorOptions(simulator)
  // An environment's own cost limit needs no prices: it must run on a local model that costs nothing, too.
  if (options.maxCostUsd !== undefined || options.limits?.maxCostUsd !== undefined) requirePrices(config)
  return {
    env,
    config,
    digest: experimentDigest(config),
    loaded,
    supervision: resolveSupervision(options.supervision),
    settings: runSettings(config, asked),
  }
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
      'supervision applies to workers, but this run has no workers: set their number with --workers (workers)',
    )
  }
}

function requireTokens({ captureTokens, maxVersionsBehind }: RunConfig): void {
  if (captureTokens || maxVersionsBehind === undefined) return
  const message =
    'weight versions are recorded with tokens: add --tokens (captureTokens), or leave out --max-versions-behind (maxVersionsBehind)'
  throw new MillraceError('config_invalid', message)
}

/** A limit in dollars needs the prices of all models: any may be asked, by a judge or a child. */
function requirePrices({ models, model }: RunConfig): void {
  const unpriced = models.find(
    ({ name, upstreamName, price, simulator }) => !price && !simulator && !priceOf(upstreamName ?? name),
  )
  if (!unpriced) return
  // The flags set the price of the policy only.
  const how = unpriced.name === model ? '--price.input and --price.output (price in its config)' : 'price in its config'
  throw new MillraceError(
    'config_invalid',
    `a cost limit needs prices, but the price of ${unpriced.name} is unknown; set it with ${how}, or leave out the limit`,
  )
}

function workerCount(workers: EvaluateOptions['workers']): number | null {
  if (workers === undefined) return null
  if (workers === 'auto') return Math.min(availableParallelism(), maxWorkers)
  if (workers <= maxWorkers) return workers
  throw new MillraceError('config_invalid', `there can be at most ${maxWorkers} workers, not ${workers}`)
}

/** Makes the agent once, so that wrong options are found before anything is opened. */
function agentOf(given: EvaluateOptions['agent']): Pick<RunConfig, 'agent'> {
  if (given === undefined) return {}
  const agent = namedAgentOf(given)
  agentNamed(agent)
  return { agent }
}

function toolFormatOf(name: string): Pick<RunConfig, 'toolFormat'> {
  if (name === 'native') return {}
  const toolFormat = toolFormatNames.find((known) => known === name)
  if (toolFormat) return { toolFormat }
  const known = ['native', ...toolFormatNames].join(', ')
  throw new MillraceError('config_invalid', `there is no tool format "${name}"; the formats are: ${known}`)
}

function limitsOf(given: Limits): Limits {
  const limits = fitting(limitsSchema, given, 'limits do not fit')
  // A short wall limit still leaves a fifth of itself to reward and teardown.
  return limits.tailMs < limits.wallTimeoutMs ? limits : { ...limits, tailMs: limits.wallTimeoutMs / 5 }
}

function fitting<Value>(schema: z.ZodType<Value>, value: Value, problem: string): Value {
  const checked = safeParse(schema, value)
  if (checked.success) return checked.data
  throw new MillraceError('config_invalid', `${problem}: ${describeIssues(checked.error.issues)}`)
}

/** All models, the evaluated one first. Only those that are known to be asked need their key now. */
function runModels(
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
