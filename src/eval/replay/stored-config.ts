import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { namedAgentSchema } from '../../agents/index.ts'
import { environmentOf, loadEnvironment, type Environment, type LoadedEnvironment } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { modelConfigSchema, type ModelConfig } from '../../inference/index.ts'
import { derivedSeed } from '../../kit/index.ts'
import type { PromptOverride } from '../../rollout/index.ts'
import { describeIssues, limitsSchema, safeParse, samplingSchema } from '../../schema/index.ts'
import { isRedacted, readRunFile, type RunReader } from '../../store/index.ts'
import { toolFormatNames } from '../../tool-formats/index.ts'

const storedConfigSchema = z.object({
  environment: z.object({
    name: z.string(),
    specifier: z.string().nullable(),
    options: z.record(z.string(), z.unknown()),
  }),
  models: z.array(modelConfigSchema),
  model: z.string(),
  judge: z.string(),
  judgeConcurrency: z.number(),
  attempts: z.number(),
  group: z.object({ size: z.number(), policy: z.enum(['keep', 'replace', 'void']), isScored: z.boolean() }),
  limits: limitsSchema,
  sampling: samplingSchema,
  seed: z.number().nullable(),
  agent: namedAgentSchema.exactOptional(),
  toolFormat: z.enum(toolFormatNames).exactOptional(),
  captureTokens: z.boolean(),
  passThreshold: z.number(),
  drawSeed: z.number(),
  forkedFrom: z
    .object({ seed: z.number(), system: z.string().exactOptional(), prompt: z.string().exactOptional() })
    .exactOptional(),
  isServed: z.boolean().exactOptional(),
})

export type StoredRunConfig = z.infer<typeof storedConfigSchema> & { readonly name: string }

/** Throws `run_mismatch` if the run has no rollouts: that of a gateway. */
export function readStoredConfig(reader: RunReader): StoredRunConfig {
  const file = readRunFile(reader.folder)
  if (!file) throw new MillraceError('run_not_found', `there is no run in ${reader.folder}`)
  const { name, config } = file
  if (config['kind'] === 'gateway') {
    throw new MillraceError('run_mismatch', `run ${name} holds the sessions of a gateway, and no rollouts to run again`)
  }
  const parsed = safeParse(storedConfigSchema, config)
  if (parsed.success) return { ...parsed.data, models: parsed.data.models.map(withoutRedacted), name }
  throw new MillraceError(
    'run_mismatch',
    `run.json of ${name} does not say how its rollouts were run: ${describeIssues(parsed.error.issues)}`,
  )
}

/** Removes redacted values: secrets are not kept with a run, and the placeholder must not be sent in their place. */
function withoutRedacted(model: ModelConfig): ModelConfig {
  const backends = model.backends.map((backend) => ({
    ...backend,
    url: addressWithoutRedacted(backend.url),
    headers: Object.fromEntries(Object.entries(backend.headers).filter(([, value]) => !isRedacted(value))),
  }))
  return { ...model, backends }
}

function addressWithoutRedacted(address: string): string {
  if (!isRedacted(address)) return address
  const url = new URL(address)
  if (isRedacted(decodeURIComponent(url.username))) url.username = ''
  url.search = new URLSearchParams([...url.searchParams].filter(([, value]) => !isRedacted(value))).toString()
  return url.href
}

/** Refuses redacted options: with a placeholder for a secret an environment would run, and give other results. */
function refuseRedacted(options: Readonly<Record<string, unknown>>, run: string): void {
  const missing = Object.keys(options).filter((name) => isRedacted(JSON.stringify(options[name]) ?? ''))
  if (missing.length === 0) return
  const flags = missing.map((name) => `--env.${name}=<value>`).join(' ')
  throw new MillraceError(
    'config_invalid',
    `run ${run} was not stored with what looked like secrets among the environment's options: give them again with ${flags} (options)`,
    { data: { options: missing.join(',') } },
  )
}

export async function loadStoredEnvironment(
  config: StoredRunConfig,
  given: string | Environment | undefined,
  options: Readonly<Record<string, unknown>> = {},
): Promise<LoadedEnvironment> {
  const { specifier } = config.environment
  const all = { ...config.environment.options, ...options }
  refuseRedacted(all, config.name)
  if (given !== undefined) {
    try {
      return typeof given === 'string' ? await loadEnvironment(given, all) : environmentOf(given, all)
    } catch (error) {
      throw withStoredOptions(error, config)
    }
  }
  if (specifier === null) {
    throw new MillraceError(
      'env_invalid',
      `run ${config.name} was made with an environment that was given as an object, not as a module: name the module of that environment`,
    )
  }
  if (existsSync(new URL(specifier))) return await loadEnvironment(specifier, all)
  const path = fileURLToPath(specifier)
  throw new MillraceError(
    'file_not_found',
    `run ${config.name} was made with the environment ${path}, which no longer exists; restore it, or give its new path ` +
      'with --environment (environment); rescore takes it after the name of the run',
    { data: { path } },
  )
}

/** Explains an error about options that nobody typed: they are those of the run, which another environment may not know. */
function withStoredOptions(error: unknown, { name, environment }: StoredRunConfig): unknown {
  const stored = Object.keys(environment.options)
  if (!(error instanceof MillraceError) || error.code !== 'config_invalid' || stored.length === 0) return error
  return new MillraceError(
    'config_invalid',
    `${error.rawMessage}. It was given the options that run ${name} is stored with (${stored.join(', ')}): ` +
      'add those to its `options`, or name an environment that takes them',
    { cause: error },
  )
}

/** The seed of a rollout. A forked rollout has the seed of the rollout it was forked from. */
export function storedSeed({ drawSeed, forkedFrom }: StoredRunConfig, id: string, attempt: number): number {
  return forkedFrom?.seed ?? derivedSeed(drawSeed, id, attempt)
}

export function storedPromptOverride({ forkedFrom }: StoredRunConfig): PromptOverride | undefined {
  const { system, prompt } = forkedFrom ?? {}
  if (system === undefined && prompt === undefined) return undefined
  return { ...(system !== undefined && { system }), ...(prompt !== undefined && { prompt }) }
}
