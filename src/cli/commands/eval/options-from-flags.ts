import { z } from 'zod'
import type { NamedAgent } from '../../../agents/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import type { EvaluateOptions, RunOptions } from '../../../eval/index.ts'
import {
  defaultBackendUrl,
  type ModelConfigInput,
  type NamedModelInput,
  namedModelSchema,
  shownUrl,
} from '../../../inference/index.ts'
import type { Variables } from '../../../kit/index.ts'
import { describeIssues, type Limits, safeParse, type Sampling } from '../../../schema/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { type FlagValues, definedFields } from '../../command-line/flags.ts'
import { namedKey, usageError } from '../../command-line/flag-value.ts'
import { readJsonFile } from '../../command-line/input-file.ts'
import { runsRoot } from '../../stored-runs/stored-run.ts'
import type { evalFlags } from './eval-command.ts'

/** Fields that a flag may leave out. Named, so that a field that the option does not have is an error. */
type Flagged<Fields> = { [Name in keyof Fields]?: Fields[Name] | undefined }

export async function optionsFromFlags(
  invocation: Invocation<typeof evalFlags>,
  io: { readonly cwd: string; readonly env: Variables },
): Promise<EvaluateOptions> {
  const { flags, prefixed } = invocation
  const [environment] = invocation.arguments
  if (environment === undefined || flags.model === undefined) {
    throw usageError('which model? Add -m <name>; -m sim is built in and needs no key')
  }
  const models = flags.models === undefined ? {} : await readModelsFile(flags.models, io.cwd)
  const supervision = definedFields<Flagged<NonNullable<EvaluateOptions['supervision']>>>({
    replaceAfterMs: flags['worker-timeout'],
    maxAgeMs: flags['max-worker-age'],
    maxMemoryBytes: flags['max-worker-memory'] && flags['max-worker-memory'] * bytesPerMb,
  })
  return {
    environment,
    model: modelFromFlags({ name: flags.model, flags, simulator: prefixed['sim'] ?? {}, models, env: io.env }),
    models,
    attempts: flags.attempts ?? 1,
    concurrency: flags.concurrency ?? 64,
    ...definedFields<Flagged<EvaluateOptions>>({
      options: prefixed['env'],
      judge: flags.judge,
      judgeConcurrency: flags['judge-concurrency'],
      limit: flags.limit,
      seed: flags.seed,
      agent: agent(flags.agent, prefixed['agent']),
      toolFormat: flags['tool-format'],
      captureTokens: flags.tokens,
      maxVersionsBehind: flags['max-versions-behind'],
      retries: flags.retries,
      maxCostUsd: flags['max-cost'],
      passThreshold: flags['pass-threshold'],
      workers: flags.workers === undefined ? undefined : workers(flags.workers),
    }),
    limits: definedFields<Flagged<Limits>>({
      maxTurns: flags['max-turns'],
      maxTokens: flags['max-rollout-tokens'],
      maxCostUsd: flags['max-rollout-cost'],
      timeoutMs: flags.timeout,
      wallTimeoutMs: flags['wall-timeout'],
    }),
    sampling: definedFields<Flagged<Sampling>>({
      temperature: flags.temperature,
      topP: flags['top-p'],
      maxTokens: flags['max-tokens'],
      stop: flags.stop && [...flags.stop],
      reasoningEffort: flags['reasoning-effort'],
      extra: prefixed['sampling'] as Sampling['extra'],
    }),
    ...(Object.keys(supervision).length > 0 && { supervision }),
    ...(flags['no-preflight'] && { preflight: false }),
    run: run(flags, io),
  }
}

/** The name is checked when the run is resolved, as that of `evaluate()` is. */
function agent(name: string | undefined, options: Invocation<typeof evalFlags>['prefixed'][string] | undefined) {
  if (name !== undefined) return { ...options, name } as NamedAgent
  const [option] = Object.keys(options ?? {})
  if (option === undefined) return undefined
  throw usageError(`--agent.${option} is an option of a built-in agent: name it with --agent <name>`)
}

const bytesPerMb = 1024 * 1024

function workers(text: string): number | 'auto' {
  if (text === 'auto') return text
  const count = Number(text)
  if (Number.isSafeInteger(count) && count >= 1) return count
  throw usageError(`--workers is a whole number of at least 1, or auto, not ${text}`)
}

function run(flags: FlagValues<typeof evalFlags>, io: Parameters<typeof runsRoot>[1]): RunOptions {
  if (flags.new && flags.resume !== undefined) {
    throw usageError('--new starts a run and --resume continues one; give only one of them')
  }
  if (flags.new && flags['retry-failed']) {
    throw usageError('--retry-failed needs a run to continue; leave out --new')
  }
  const resumed = flags.resume === '' ? undefined : flags.resume
  if (resumed !== undefined && flags.run !== undefined && resumed !== flags.run) {
    throw usageError(`--resume names the run ${resumed} and --run the run ${flags.run}; give one name`)
  }
  const name = resumed ?? flags.run
  runsRoot(flags.runs, io)
  return {
    ...definedFields({ root: flags.runs, name, retryFailed: flags['retry-failed'] }),
    resume: flags.new ? 'never' : flags.resume === undefined ? 'auto' : 'required',
  }
}

type ModelFlags = Partial<
  Pick<
    FlagValues<typeof evalFlags>,
    | 'base-url'
    | 'api-key-env'
    | 'api'
    | 'stream'
    | 'exact-tokens'
    | 'tokenizer'
    | 'price.input'
    | 'price.output'
    | 'rpm'
    | 'tpm'
    | 'max-wait'
  >
>

interface ModelFromFlags {
  readonly name: string
  readonly flags: ModelFlags
  readonly simulator: Readonly<Record<string, unknown>>
  readonly models: Readonly<Record<string, ModelConfigInput>>
  readonly env: Variables
}

/** The policy's model. Without other flags it is only its name, so that the library's own rules apply. */
export function modelFromFlags(input: ModelFromFlags): string | ModelConfigInput {
  const { flags, simulator } = input
  const named = Object.hasOwn(input.models, input.name) ? input.models[input.name] : undefined
  const overrides = settings(flags)
  if (flags.tokenizer !== undefined && (overrides.tokens ?? named?.tokens) !== 'exact') {
    throw usageError('--tokenizer is for exact tokens; add --exact-tokens, or leave it out')
  }
  const hasEndpoint = flags['base-url'] !== undefined || flags['api-key-env'] !== undefined
  const [option] = Object.keys(simulator)
  if (option !== undefined) {
    if (input.name !== 'sim' && named?.simulator === undefined) {
      throw usageError(
        `--sim.${option} is an option of the simulator, but the model is ${input.name}; use -m sim or leave it out`,
      )
    }
    if (hasEndpoint) {
      throw usageError(
        `--sim.${option} is an option of the built-in simulator, which has no endpoint; leave out --base-url and --api-key-env, or give the option to the server (millrace sim)`,
      )
    }
    const options = { ...named?.simulator, ...(simulator as ModelConfigInput['simulator']) }
    return { ...(named ?? { name: input.name }), ...overrides, simulator: options }
  }
  if (!hasEndpoint && Object.keys(overrides).length === 0) return input.name
  if (named && !hasEndpoint) return { ...named, ...overrides }
  if (input.name === 'sim' && !hasEndpoint) return { name: input.name, ...overrides, simulator: {} }
  return { ...(named ?? { name: input.name }), ...overrides, backends: [endpoint(input)] }
}

function settings(flags: ModelFlags): Partial<ModelConfigInput> {
  const [input, output] = [flags['price.input'], flags['price.output']]
  if ((input === undefined) !== (output === undefined)) {
    throw usageError('a price has two sides: give both --price.input and --price.output')
  }
  return definedFields({
    api: flags.api,
    stream: flags.stream,
    tokens: flags['exact-tokens'] ? ('exact' as const) : undefined,
    tokenizer: flags.tokenizer,
    price: input === undefined || output === undefined ? undefined : { input, output },
    requestsPerMinute: flags.rpm,
    tokensPerMinute: flags.tpm,
    maxWaitMs: flags['max-wait'],
  })
}

function endpoint({ flags, env }: ModelFromFlags): { url: string; apiKeyEnv?: string } {
  const url = flags['base-url'] ?? defaultBackendUrl(flags.api ?? 'chat', env)
  if (!URL.canParse(url) || !/^https?:/.test(url)) {
    throw usageError(`--base-url is a URL such as http://localhost:8000/v1, not ${shownUrl(url)}`)
  }
  const apiKeyEnv = flags['api-key-env']
  if (apiKeyEnv === undefined) return { url }
  namedKey('api-key-env', apiKeyEnv, env)
  return { url, apiKeyEnv }
}

// The file is checked but not transformed: defaults are filled in when a model is opened.
const fileSchema = z.record(z.string(), namedModelSchema)

export async function readModelsFile(path: string, cwd: string): Promise<Readonly<Record<string, ModelConfigInput>>> {
  const content = await readJsonFile(path, cwd)
  const checked = safeParse(fileSchema, content)
  if (!checked.success) {
    throw new MillraceError(
      'config_invalid',
      `${path}: ${describeIssues(checked.error.issues, content)}; expected { "name": { "backends": [{ "url": … }], … } }`,
    )
  }
  const models = content as Readonly<Record<string, NamedModelInput>>
  return Object.fromEntries(Object.entries(models).map(([name, model]) => [name, { ...model, name }]))
}
