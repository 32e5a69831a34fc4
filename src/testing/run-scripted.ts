import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { evaluate, evaluateOptionFields, type EvaluateOptions, requireOptions, type Summary } from '../eval/index.ts'
import { closedObject, type RolloutRecord } from '../schema/index.ts'
import { type Script, ScriptedBackend } from './scripted-backend.ts'

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

const { model: _model, ...otherOptions } = evaluateOptionFields
const scriptedRunSchema = closedObject({
  script: z.custom((given) => typeof given === 'function', 'expected a function'),
  maxTries: z.unknown().optional(),
  ...otherOptions,
} satisfies Record<keyof ScriptedRunOptions, unknown>)

const scriptedName = 'scripted'

/**
 * Runs an environment with a script for a model, in a folder that is gone afterwards, and gives back what every rollout
 * came to, in the order of tasks and samples. `backends` are for judges and children that ask other models. The scripted model
 * is configured as `models.scripted`, its price for example; without one it costs a dollar per million tokens.
 */
export async function runScripted(options: ScriptedRunOptions): Promise<ScriptedRun> {
  requireOptions(scriptedRunSchema, options, 'runScripted()')
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

/** A folder for runs that is gone when the scope ends. */
export async function temporaryRuns(): Promise<AsyncDisposable & { readonly root: string }> {
  const root = await mkdtemp(join(tmpdir(), 'millrace-runs-'))
  return { root, [Symbol.asyncDispose]: () => rm(root, { recursive: true, force: true }) }
}
