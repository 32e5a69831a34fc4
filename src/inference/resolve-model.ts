import { MillraceError } from '../errors/index.ts'
import { nearestName } from '../kit/index.ts'
import { describeIssues } from '../schema/index.ts'
import { backendUrl, isOpenAiHost } from './http-backend.ts'
import { modelConfigSchema, type ModelConfig, type ModelConfigInput } from './model-config.ts'
import type { Environment } from './proxy.ts'

export interface ResolveModelOptions {
  /** `sim`, a name in `models`, a name to ask the OpenAI-compatible endpoint of the environment for, or a config. */
  readonly model: string | ModelConfigInput
  readonly models?: Readonly<Record<string, ModelConfigInput>>
  /** For what the model's own config leaves open, instead of the schema's defaults. */
  readonly defaults?: Partial<ModelConfigInput>
  readonly env: Environment
}

const openAiUrl = 'https://api.openai.com/v1'

/** What a user named or wrote, as a complete config: every default filled in, every mistake reported with its field. */
export function resolveModelConfig({ model, models = {}, defaults, env }: ResolveModelOptions): ModelConfig {
  const config = parse({ ...defaults, ...inputFor(model, models) })
  if (config.simulator && config.backends.length > 0) {
    throw invalid(config.name, 'it has both backends and a simulator. Remove one of them.')
  }
  if (config.simulator) return config
  const complete = config.backends.length > 0 ? config : parse({ ...config, backends: [{ url: defaultUrl(env) }] })
  for (const backend of complete.backends) {
    const { hostname } = backendUrl(backend.url)
    if (isOpenAiHost(hostname) && !env[backend.apiKeyEnv] && !hasOwnAuthorization(backend.headers)) {
      throw missingKey(complete.name, backend.apiKeyEnv, Object.keys(models))
    }
  }
  return complete
}

function inputFor(
  model: string | ModelConfigInput,
  models: Readonly<Record<string, ModelConfigInput>>,
): ModelConfigInput {
  if (typeof model !== 'string') return model
  if (model.trim() === '')
    throw new MillraceError('config_invalid', 'the model has no name. Name one with -m, or use -m sim.')
  if (Object.hasOwn(models, model)) return named(model, models[model] as ModelConfigInput)
  return model === 'sim' ? { name: 'sim', simulator: {} } : { name: model }
}

/** A run calls a model by its key; what it was called inside is then what its backends call it. */
function named(key: string, input: ModelConfigInput): ModelConfigInput {
  return input.name === key ? input : { ...input, name: key, upstreamName: input.upstreamName ?? input.name }
}

function parse(input: ModelConfigInput): ModelConfig {
  // Strict, because a misspelt limit that is silently ignored shows only when it should have held.
  const parsed = modelConfigSchema.strict().safeParse(input)
  if (parsed.success) return parsed.data
  const name = typeof input.name === 'string' ? input.name : '(without a name)'
  throw invalid(name, `${describeIssues(parsed.error.issues)}. Correct that in its config.`)
}

function defaultUrl(env: Environment): string {
  return env['OPENAI_BASE_URL'] || openAiUrl
}

function hasOwnAuthorization(headers: Readonly<Record<string, string>>): boolean {
  return Object.keys(headers).some((name) => ['authorization', 'api-key'].includes(name.toLowerCase()))
}

function missingKey(name: string, variable: string, known: readonly string[]): MillraceError {
  const meant = nearestName(name, [...known, 'sim'])
  const hint = meant === undefined ? '' : ` Did you mean "${meant}"?`
  const step = `Set ${variable}, set OPENAI_BASE_URL to another server, or use -m sim, which needs no key.`
  return new MillraceError('model_auth', `model ${name} is served by OpenAI and ${variable} is not set. ${step}${hint}`)
}

function invalid(name: string, detail: string): MillraceError {
  return new MillraceError('config_invalid', `model ${name}: ${detail}`)
}
