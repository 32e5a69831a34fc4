import {
  evaluate,
  knownEvaluateOptions,
  requireKnownOptions,
  type EvaluateOptions,
  type KnownOptions,
  type Summary,
} from '../eval/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import { ScriptedBackend, type Script } from './scripted-backend.ts'
import { temporaryRuns } from './temporary-runs.ts'

export interface ScriptedRun {
  readonly records: readonly RolloutRecord[]
  readonly summary: Summary
  readonly backend: ScriptedBackend
}

interface ScriptedRunOptions extends Omit<EvaluateOptions, 'model'> {
  readonly script: Script
  /** A script that throws fails at once unless this says how often to try. */
  readonly maxTries?: number
}

const { model: _model, ...evaluateOptions } = knownEvaluateOptions
const knownOptions = {
  script: 'function',
  maxTries: 'any',
  ...evaluateOptions,
} as const satisfies KnownOptions & Record<keyof ScriptedRunOptions, unknown>

const scriptedName = 'scripted'

/**
 * Runs an environment with a script for a model, in a folder that is gone afterwards, and gives back what every rollout
 * came to, in the order of tasks and samples. `backends` are for judges and children that ask other models. The scripted model
 * is configured as `models.scripted`, its price for example; without one it costs a dollar per million tokens.
 */
export async function runScripted(options: ScriptedRunOptions): Promise<ScriptedRun> {
  requireKnownOptions(options, 'runScripted()', knownOptions)
  const { script, models, maxTries = models?.[scriptedName]?.maxTries ?? 1, ...rest } = options
  const backend = new ScriptedBackend(script)
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    preflight: false,
    ...rest,
    ...(models && { models }),
    model: { price: { input: 1, output: 1 }, ...models?.[scriptedName], name: scriptedName, maxTries },
    backends: { ...rest.backends, [scriptedName]: [backend] },
    run: { root: runs.root, ...rest.run },
  })
  const records = await Array.fromAsync(evaluation)
  records.sort((one, other) => one.task.index - other.task.index || one.sample - other.sample)
  return { records, summary: await evaluation.summary(), backend }
}
