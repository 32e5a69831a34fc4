import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import type { EvaluateOptions, RunOptions } from './evaluation.ts'
import { unfit } from './option-values.ts'
import { isFork } from './replay/fork.ts'

const kinds = {
  object: { words: 'an object', fits: isObject },
  text: { words: 'a text', fits: (value: unknown) => typeof value === 'string' },
  switch: { words: 'true or false', fits: (value: unknown) => typeof value === 'boolean' },
  amount: { words: 'a number of at least 0', fits: (value: unknown) => typeof value === 'number' && value >= 0 },
  function: { words: 'a function', fits: (value: unknown) => typeof value === 'function' },
  fork: { words: 'what forkRollout() makes', fits: isFork },
  signal: { words: 'an AbortSignal', fits: (value: unknown) => value instanceof AbortSignal },
  /** The code that uses the option checks it. */
  any: { words: 'anything', fits: () => true },
} as const

/** The options that exist, and the kind of each; an object with known fields is described by those. */
export interface KnownOptions {
  readonly [name: string]: keyof typeof kinds | KnownOptions
}

export const knownRunOptions = {
  root: 'text',
  name: 'text',
  resume: 'any',
  retryFailed: 'switch',
} as const satisfies KnownOptions & Record<keyof RunOptions, unknown>

export const knownEvaluateOptions = {
  environment: 'any',
  options: 'object',
  model: 'any',
  models: 'object',
  judge: 'text',
  attempts: 'any',
  concurrency: 'any',
  judgeConcurrency: 'any',
  limit: 'any',
  limits: 'object',
  sampling: 'object',
  seed: 'any',
  toolFormat: 'text',
  captureTokens: 'switch',
  retries: 'any',
  maxCostUsd: 'any',
  passThreshold: 'any',
  workers: 'any',
  supervision: 'object',
  preflight: 'switch',
  run: knownRunOptions,
  fork: 'fork',
  backends: 'object',
  signal: 'signal',
} as const satisfies KnownOptions & Record<keyof EvaluateOptions, unknown>

/** Checks at run time, as JavaScript has no types, and TypeScript checks the names of literals only. */
export function requireKnownOptions(options: unknown, of: string, known: KnownOptions): void {
  requireFields(options, known, { what: `options of ${of}`, path: '' })
}

function requireFields(
  value: unknown,
  known: KnownOptions,
  { what, path }: { readonly what: string; readonly path: string },
): void {
  const names = Object.keys(known)
  if (!isObject(value)) {
    const called = path === '' ? what : `${what}: \`${path.slice(0, -1)}\``
    throw unfit(called, `an object with fields such as ${names.slice(0, 3).join(', ')}`, value)
  }
  const unknown = unknownField(value, names, path)
  if (unknown !== undefined) throw new MillraceError('config_invalid', `${what}: ${unknown}`)
  for (const [name, kind] of Object.entries(known)) {
    const given: unknown = Reflect.get(value, name)
    if (given === undefined) continue
    if (typeof kind === 'object') requireFields(given, kind, { what, path: `${path}${name}.` })
    else if (!kinds[kind].fits(given)) throw unfit(`${what}: \`${path}${name}\``, kinds[kind].words, given)
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
