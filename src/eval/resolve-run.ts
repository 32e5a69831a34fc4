import { availableParallelism } from 'node:os'
import { environmentOf, hasGroupReward, loadEnvironment, type LoadedEnvironment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { priceOf } from '../inference/index.ts'
import type { Variables } from '../kit/index.ts'
import type { RunSettings } from '../rollout/index.ts'
import {
  defaultLimits,
  describeIssues,
  limitsSchema,
  samplingSchema,
  type Limits,
  type Sampling,
} from '../schema/index.ts'
import { toolFormatNames } from '../tools/index.ts'
import { parseSimulatorOptions } from '../simulator/index.ts'
import { maxWorkers, resolveSupervision, type Supervision } from '../worker/index.ts'
import type { EvaluateOptions, RunOptions } from './evaluation.ts'
import { experimentDigest, moduleName } from './experiment.ts'
import { choiceOption, numberOption, wholeOption } from './option-values.ts'
import type { RunConfig } from './run-config.ts'
import { runModels } from './_run-models.ts'
import { runSettings } from './run-settings.ts'

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
  const { policy, models, asked } = runModels(options, env, concurrency)
  const { environment } = loaded
  const attempts = wholeOption('attempts', options.attempts ?? 1, 1)
  const config: RunConfig = {
    environment: {
      name: environment.name,
      specifier: loaded.specifier ?? null,
      module: loaded.specifier === undefined ? null : moduleName(loaded.specifier),
      options: loaded.options,
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
      'supervision is of workers, and there are none: say how many with --workers (workers)',
    )
  }
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
