import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { closedObject, describeIssues, safeParse } from '../../schema/index.ts'
import { exclusiveFaults } from './faults.ts'

// Options come from a command line (`--sim.skill=0.8`) as often as from code, so numbers and booleans may be given as text.
const numeric = <Schema extends z.ZodType>(schema: Schema) =>
  z.preprocess((value, context) => {
    if (typeof value !== 'string') return value
    // An empty text is not zero.
    const number = value.trim() === '' ? Number.NaN : Number(value)
    if (Number.isNaN(number)) context.addIssue(`expected a number, not ${JSON.stringify(value)}`)
    return number
  }, schema)
const truth = z.preprocess((value) => (value === 'true' ? true : value === 'false' ? false : value), z.boolean())

const probability = numeric(z.number().min(0).max(1)).default(0)
const duration = numeric(z.number().min(0)).default(0)
const count = numeric(z.number().int().min(0)).default(0)

const seed = z.preprocess(
  (value) => (typeof value === 'string' && /^-?\d+$/.test(value) ? Number(value) : value),
  z.custom<number | 'random'>(
    (value) => value === 'random' || Number.isSafeInteger(value),
    'expected a whole number, or "random"',
  ),
)

const faultsSchema = closedObject({
  rateLimit: probability,
  serverError: probability,
  /** The reply stops in the middle. */
  cut: probability,
  /** The reply is not JSON. */
  malformed: probability,
  /** No reply, ever. */
  hang: probability,
  /** The connection breaks in the middle. */
  kill: probability,
  /** The reply ends in order in the middle, without saying that it is complete. */
  quietEnd: probability,
  /** The reply begins and then nothing more comes. */
  stall: probability,
  /** An error is reported in the middle of a reply that began with 200. */
  midstreamError: probability,
  /** Ten times the latency; may come on top of the others. */
  slow: probability,
  /** One token at a time, slowly; may come on top of the others. */
  trickle: probability,
}).refine((faults) => exclusiveFaults.reduce((sum, fault) => sum + faults[fault], 0) <= 1, {
  message: `${exclusiveFaults.join(', ')} exclude each other: together they must not exceed 1`,
})

/** The backend whose server the simulator acts as: see docs/simulator.md. */
export const imitationNames = ['vllm', 'sglang', 'openai', 'anthropic', 'millrace'] as const

export type ImitationName = (typeof imitationNames)[number]

const settingsSchema = closedObject({
  /** A number: equal requests get equal replies. `random`: a request without a seed of its own gets a new sample each time. */
  seed: seed.default(0),
  skill: numeric(z.number().min(0).max(1)).default(1),
  sloppiness: probability,
  ttftMs: duration,
  /** 0: the whole reply at once. */
  tokensPerSecond: numeric(z.number().min(0)).default(0),
  /** Added to the time to the first token for each 1,000 tokens of the prompt that are not in the prefix cache. */
  prefillMs: duration,
  /** How many tokens of prompts and replies the prefix cache holds. 0: there is none. */
  prefixCacheTokens: count,
  /** Replies in the making at once; more requests wait in a queue. 0: no limit. */
  maxRunning: count,
  /** Relative standard deviation of both latencies, which are lognormal. */
  spread: numeric(z.number().min(0).max(5)).default(0.2),
  faults: faultsSchema.prefault({}),
  /** How long a 429 tells the client to wait; 0: it does not say. */
  retryAfterMs: numeric(z.number().min(0)).default(100),
  /** Answers 503 to everything for `forMs`, beginning `afterMs` after the start. */
  overload: closedObject({ afterMs: duration, forMs: duration }).prefault({}),
  /** Requests at once; above it 429. 0: no limit. */
  maxConcurrent: count,
  /** Tokens of prompt and reply together. 0: no limit. */
  contextLength: count,
  /** Thinks aloud in `reasoning_content`. */
  reasoning: truth.default(false),
  /** The layers of a mixture and how many experts each token goes through in each, as `48x8`; empty: no mixture. */
  routedExperts: z
    .string()
    .regex(/^([1-9]\d{0,3}x[1-9]\d?)?$/, 'is layers x experts per token, such as 48x8')
    .default(''),
  /** The version that sampled tokens are stamped with. */
  weightVersion: z.preprocess((value) => (typeof value === 'number' ? String(value) : value), z.string()).optional(),
  /** The imitated backend: decides which token fields replies have and which endpoints a server has. */
  imitate: z.enum(imitationNames).default('vllm'),
  /**
   * `words`: tokens made up from words, the same for the same text. `lossy`: those of a small tokenizer, sampled in other pieces than
   * it would encode the text in, as engines sample them.
   */
  tokens: z.enum(['words', 'lossy']).default('words'),
  /** Whether servers of `vllm` and `sglang` have the routes that pause them and name the version of their weights. */
  engineControls: truth.default(true),
  /** Those of these routes that answer 500, with commas between them: `/pause,/resume`. */
  failingControls: z.string().default(''),
  /** How many emitted replies are kept for tests; the oldest are dropped first. 0: none. */
  recordEmitted: count,
})

export type SimulatorSettings = z.output<typeof settingsSchema>

/** Options that a caller may give: any part, numbers also as text, and nested options also as `'faults.cut'`. */
export type SimulatorOptions = Readonly<Record<string, unknown>> & {
  readonly [Name in Exclude<keyof SimulatorSettings, 'faults' | 'overload'>]?: SimulatorSettings[Name] | string
} & {
  readonly faults?: { readonly [Name in keyof SimulatorSettings['faults']]?: number | string }
  readonly overload?: { readonly [Name in keyof SimulatorSettings['overload']]?: number | string }
}

export function parseSimulatorOptions(
  options: SimulatorOptions,
  { base, place = 'simulator options' }: { readonly base?: SimulatorSettings; readonly place?: string } = {},
): SimulatorSettings {
  const given = nested(options, base)
  const parsed = safeParse(settingsSchema, given)
  if (parsed.success) return parsed.data
  throw new MillraceError('config_invalid', `${place}: ${describeIssues(parsed.error.issues, given)}`, {
    cause: parsed.error,
  })
}

/** `{ 'faults.cut': '0.1' }` as `{ faults: { cut: '0.1' } }`, laid over `base` one level deep. */
function nested(options: SimulatorOptions, base: SimulatorSettings | undefined): Record<string, unknown> {
  const result: Record<string, unknown> = { ...base }
  const put = (group: string, values: object): void => {
    const existing = result[group]
    result[group] = { ...(isRecord(existing) ? existing : {}), ...values }
  }
  for (const [key, value] of Object.entries(options)) {
    const dot = key.indexOf('.')
    if (value === undefined) continue
    if (dot > 0) put(key.slice(0, dot), { [key.slice(dot + 1)]: value })
    else if (isRecord(value)) put(key, value)
    else result[key] = value
  }
  return result
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
