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

/** JavaScript has no types, and TypeScript checks the names of literals only. `inner` has names of options within options. */
export function requireKnownOptions(
  options: object,
  { of, names, inner }: { of: string; names: readonly string[]; inner?: Readonly<Record<string, readonly string[]>> },
): void {
  requireObject(options, `options of ${of}`, names)
  let unknown = unknownField(options, names)
  for (const [name, known] of Object.entries({ run: Object.keys(runOptionNames), ...inner })) {
    const within: unknown = Reflect.get(options, name) ?? {}
    requireObject(within, `options of ${of}: \`${name}\``, known)
    unknown ??= unknownField(within, known, `${name}.`)
  }
  if (unknown !== undefined) throw new MillraceError('config_invalid', `options of ${of}: ${unknown}`)
}

function requireObject(value: unknown, what: string, names: readonly string[]): asserts value is object {
  if (typeof value === 'object' && value !== null) return
  const given = typeof value === 'string' ? `'${value}'` : String(value)
  const some = names.slice(0, 3).join(', ')
  throw new MillraceError('config_invalid', `${what} must be an object with fields such as ${some}, not ${given}`)
}
