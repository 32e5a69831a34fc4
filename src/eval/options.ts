import { z } from 'zod'
import type { AgentName, NamedAgent } from '../agents/index.ts'
import type { Environment } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { Backend } from '../apis/index.ts'
import type { ModelConfigInput, NamedModelInput } from '../inference/index.ts'
import {
  closedObject,
  describeIssues,
  jsonObjectSchema,
  type Limits,
  type RolloutRecord,
  safeParse,
  type Sampling,
} from '../schema/index.ts'
import type { Supervision } from '../worker/index.ts'
import type { Progress } from './progress.ts'
import { type Fork, isFork } from './replay/fork.ts'
import type { Summary } from './summary.ts'
import type { ToolFormatName } from '../tool-formats/index.ts'

export interface EvaluateOptions {
  /** A module (path or package), or an environment itself; an object runs on this thread only. */
  readonly environment: string | Environment
  /** Values for the environment's `options` schema. */
  readonly options?: Readonly<Record<string, unknown>>
  /** `sim`, a name from `models`, or a name that the endpoint at OPENAI_BASE_URL serves. */
  readonly model: string | ModelConfigInput
  /** Named models beside `model`: for judges, for children. */
  readonly models?: Readonly<Record<string, NamedModelInput>>
  /** The model that judges; the policy itself if not given. */
  readonly judge?: string
  /** Rollouts per task. */
  readonly attempts?: number
  /** Rollouts at once. */
  readonly concurrency?: number
  readonly judgeConcurrency?: number
  /** How many tasks to run, from the start of the source. */
  readonly limit?: number
  readonly limits?: Partial<Limits>
  readonly sampling?: Sampling
  /** Makes the run repeatable and is sent to the backend with each request; without it a simulator still gets one. */
  readonly seed?: number
  /** A built-in agent, by its name or with options of its own; that of the environment, or the tool loop, if not given. */
  readonly agent?: AgentName | NamedAgent
  /** How the model writes tool calls; as the environment says, or natively, if not given. */
  readonly toolFormat?: ToolFormatName | 'native'
  /** Keep token ids and log-probabilities of every turn. On by default for a model with exact tokens. */
  readonly captureTokens?: boolean
  /** How many weight versions a rollout's oldest tokens may be behind the newest. Beyond that it ends as `stale`. */
  readonly maxVersionsBehind?: number
  /** How often a rollout may start over after an outcome whose rule is `retry`. */
  readonly retries?: number
  /** US dollars for the whole run; once spent, nothing new starts. */
  readonly maxCostUsd?: number
  readonly passThreshold?: number
  /**
   * Rollouts run in so many workers: threads, or processes if the environment asks for isolation. `auto` is one per core.
   * Rollouts run on this thread if not given.
   */
  readonly workers?: number | 'auto'
  /** When a worker is taken for stuck, too old or too large, and how much memory it may have. */
  readonly supervision?: Partial<Supervision>
  /** Ask the model, and the judge if one is named, for one token first, so that a wrong key or name costs nothing. On by default. */
  readonly preflight?: boolean
  readonly run?: RunOptions
  /** Begins in the middle of a stored rollout; `forkRollout` makes it. */
  readonly fork?: Fork
  /**
   * Replaces a model's own backends, by model name: a script in a test, an engine in this process. They stay open when the run
   * ends, for the caller to use again and to close. Rollouts run on this thread only.
   */
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
  /** Stops the run, as `stop()` does. Before the start, the run fails with `cancelled` and the signal's reason as its `cause`. */
  readonly signal?: AbortSignal
}

export interface RunOptions {
  /** The folder that holds runs: `runs`, or MILLRACE_RUNS. */
  readonly root?: string
  readonly name?: string
  /**
   * `auto`: continue the named run, or the newest unfinished one of the same configuration. `never`: start a new one.
   * `required`: fail if there is nothing to continue.
   */
  readonly resume?: 'auto' | 'never' | 'required'
  /** Run again the rollouts that ended without a score. */
  readonly retryFailed?: boolean
}

export interface RunInfo {
  readonly name: string
  readonly folder: string
  /** Rollouts that had ended before this launch. */
  readonly resumed: number
  /** Notices for a person before the run starts: which run is continued, which fields were redacted. */
  readonly notices: readonly string[]
}

/**
 * A run in progress: iterate it for its rollouts as they end. Leaving the loop stops the run, which can be resumed.
 *
 * The run waits for its reader: once 256 results are unread, rollouts keep their places, and a run that nobody iterates and whose
 * summary nobody asks for stands still. To run it without reading, await `summary()`.
 */
export interface Evaluation extends AsyncIterable<RolloutRecord> {
  /** Resolves when the checks before the first rollout have passed. */
  readonly started: Promise<RunInfo>
  progress(): Progress
  /** Starts nothing new and lets running rollouts end; rollouts that wait for a backend that is gone end with `stop()`. */
  drain(): void
  /** Cancels running rollouts. The run ends even if its reader stands still. */
  stop(): void
  /**
   * Resolves once the run has ended. If nobody iterates, results are dropped from then on, and iterating after the first was
   * dropped is refused. If it is called inside the loop, the run no longer waits for the loop.
   */
  summary(): Promise<Summary>
}

const checkedLater = z.unknown().optional()
const anObject = z.record(z.string(), z.unknown())
const count = z.int().min(1)

const runOptionsSchema = closedObject({
  root: z.string().optional(),
  name: z.string().optional(),
  resume: z.enum(['auto', 'never', 'required']).optional(),
  retryFailed: z.boolean().optional(),
} satisfies Record<keyof RunOptions, z.ZodType>)

export const sharedOptions = {
  environment: checkedLater,
  options: anObject.optional(),
  model: checkedLater,
  models: anObject.optional(),
  concurrency: count.optional(),
  preflight: z.boolean().optional(),
  run: runOptionsSchema.optional(),
  backends: anObject.optional(),
  signal: z.instanceof(AbortSignal).optional(),
} as const

function expectedAgent(given: unknown): string {
  const values = typeof given === 'object' && given !== null ? Object.values(given) : [given]
  const isCode = values.some((value) => typeof value === 'function')
  const expected = 'expected the name of an agent, or { name, … }'
  return isCode ? `${expected}, which a run can keep; in code, give it to defineEnvironment` : expected
}

/** In the order in which `docs/library.md` lists them. */
export const evaluateOptionFields = {
  environment: sharedOptions.environment,
  options: sharedOptions.options,
  model: sharedOptions.model,
  models: sharedOptions.models,
  judge: z.string().optional(),
  attempts: count.optional(),
  concurrency: sharedOptions.concurrency,
  judgeConcurrency: count.optional(),
  limit: count.optional(),
  limits: anObject.optional(),
  sampling: anObject.optional(),
  seed: z.int().optional(),
  agent: z.union([z.string(), jsonObjectSchema], { error: ({ input }) => expectedAgent(input) }).optional(),
  toolFormat: z.string().optional(),
  captureTokens: z.boolean().optional(),
  maxVersionsBehind: z.int().min(0).optional(),
  retries: z.int().min(0).optional(),
  maxCostUsd: z.number().min(0).optional(),
  passThreshold: z.number().optional(),
  workers: z.union([count, z.literal('auto')], 'expected a whole number of at least 1, or "auto"').optional(),
  supervision: anObject.optional(),
  preflight: sharedOptions.preflight,
  run: sharedOptions.run,
  fork: z.custom(isFork, 'expected the result of forkRollout()').optional(),
  backends: z.record(z.string(), z.array(z.unknown())).optional(),
  signal: sharedOptions.signal,
} satisfies Record<keyof EvaluateOptions, z.ZodType>

export const evaluateOptionsSchema = closedObject(evaluateOptionFields)

/** Checks at run time, as JavaScript has no types, and TypeScript checks the names of literals only. */
export function requireOptions(schema: z.ZodType, options: unknown, of: string): void {
  const { error } = safeParse(schema, options)
  if (!error) return
  throw new MillraceError('config_invalid', `options of ${of}: ${describeIssues(error.issues, options)}`)
}
