import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import type { EvaluateOptions, RunOptions } from './evaluation.ts'

const optionNames: Readonly<Record<keyof EvaluateOptions, true>> = {
  environment: true,
  options: true,
  model: true,
  models: true,
  judge: true,
  attempts: true,
  concurrency: true,
  judgeConcurrency: true,
  limit: true,
  limits: true,
  sampling: true,
  seed: true,
  toolFormat: true,
  captureTokens: true,
  retries: true,
  maxCostUsd: true,
  passThreshold: true,
  workers: true,
  supervision: true,
  preflight: true,
  run: true,
  fork: true,
  backends: true,
  signal: true,
}
export const evaluateOptionNames: readonly string[] = Object.keys(optionNames)

const runOptionNames: Readonly<Record<keyof RunOptions, true>> = {
  root: true,
  name: true,
  resume: true,
  retryFailed: true,
}

/** JavaScript has no types, and TypeScript checks the names of literals only. */
export function requireKnownOptions(options: EvaluateOptions): void {
  const unknown =
    unknownField(options, evaluateOptionNames) ?? unknownField(options.run ?? {}, Object.keys(runOptionNames), 'run.')
  if (unknown !== undefined) throw new MillraceError('config_invalid', `options of evaluate(): ${unknown}`)
}
