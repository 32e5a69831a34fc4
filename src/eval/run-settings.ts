import type { RunSettings } from '../rollout/index.ts'
import type { RunConfig } from './run-config.ts'

type SettingsConfig = Pick<
  RunConfig,
  'model' | 'models' | 'judge' | 'judgeConcurrency' | 'limits' | 'sampling' | 'seed' | 'toolFormat' | 'captureTokens'
>

/** The settings of a run's rollouts. `asked` names the models that are known to be asked. */
export function runSettings(config: SettingsConfig, asked: readonly string[]): RunSettings {
  const { model, judge, judgeConcurrency, limits, sampling, captureTokens, seed, toolFormat } = config
  return {
    model,
    judge,
    asked,
    judgeConcurrency,
    limits,
    sampling,
    captureTokens,
    ...(toolFormat && { toolFormat }),
    // A simulator always answers one conversation alike, so without a seed all attempts at a task would be the same.
    sendSeed: seed !== null || isSimulated(config),
  }
}

/** Whether the evaluated model is a simulator. */
export function isSimulated({ models, model }: Pick<RunConfig, 'models' | 'model'>): boolean {
  return models.some(({ name, simulator }) => name === model && simulator !== undefined)
}
