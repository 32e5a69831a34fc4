import { MillraceError } from '../errors/index.ts'
import { resolveModelConfig, type ModelConfig } from '../inference/index.ts'
import type { Variables } from '../kit/index.ts'
import type { EvaluateOptions } from './evaluation.ts'
import { unfit } from './option-values.ts'

/**
 * All named models, with the evaluated one first. Only models that are known to be asked need their key now, as a file of models
 * is for many runs. If another model is asked later, that call fails as its key is not set.
 */
export function runModels(
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
