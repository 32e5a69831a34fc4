import { MillraceError } from '../../errors/index.ts'
import { defaultBackendUrl, shownUrl, type ModelConfigInput } from '../../inference/index.ts'
import type { FlagValues } from '../command-line/command.ts'
import { namedKey } from '../command-line/key-variable.ts'
import type { evalFlags } from './eval-flags.ts'
import type { Variables } from '../../kit/index.ts'

type ModelFlags = Pick<
  FlagValues<typeof evalFlags>,
  'base-url' | 'api-key-env' | 'api' | 'stream' | 'price.input' | 'price.output' | 'rpm' | 'tpm' | 'max-wait'
>

export interface ModelFromFlags {
  readonly name: string
  readonly flags: ModelFlags
  /** The `--sim.<option>` values. */
  readonly simulator: Readonly<Record<string, unknown>>
  readonly models: Readonly<Record<string, ModelConfigInput>>
  readonly env: Variables
}

/**
 * The policy's model as the flags describe it. Without other flags it is only its name, so that the library's own rules
 * apply; otherwise its entry in `--models` with the flags on top.
 */
export function modelFromFlags(input: ModelFromFlags): string | ModelConfigInput {
  const { flags, simulator } = input
  const named = Object.hasOwn(input.models, input.name) ? input.models[input.name] : undefined
  const overrides = settings(flags)
  const hasEndpoint = flags['base-url'] !== undefined || flags['api-key-env'] !== undefined
  if (Object.keys(simulator).length > 0) {
    if (input.name !== 'sim' && named?.simulator === undefined) {
      throw new MillraceError(
        'usage',
        `--sim.${Object.keys(simulator)[0]} is an option of the simulator, but the model is ${input.name}; use -m sim or leave it out`,
      )
    }
    if (hasEndpoint) {
      throw new MillraceError(
        'usage',
        `--sim.${Object.keys(simulator)[0]} is an option of the built-in simulator, which has no endpoint; leave out --base-url and --api-key-env, or give the option to the server (millrace sim)`,
      )
    }
    const base = named ?? { name: input.name }
    return {
      ...base,
      ...overrides,
      simulator: { ...named?.simulator, ...(simulator as ModelConfigInput['simulator']) },
    }
  }
  if (!hasEndpoint && Object.keys(overrides).length === 0) return input.name
  if (named && !hasEndpoint) return { ...named, ...overrides }
  if (input.name === 'sim' && !hasEndpoint) return { name: input.name, ...overrides, simulator: {} }
  return { ...(named ?? { name: input.name }), ...overrides, backends: [endpoint(input)] }
}

function settings(flags: ModelFlags): Partial<ModelConfigInput> {
  const [input, output] = [flags['price.input'], flags['price.output']]
  if ((input === undefined) !== (output === undefined)) {
    throw new MillraceError('usage', 'a price has two sides: give both --price.input and --price.output')
  }
  return {
    ...(flags.api && { api: flags.api }),
    ...(flags.stream && { stream: true }),
    ...(input !== undefined && output !== undefined && { price: { input, output } }),
    ...(flags.rpm !== undefined && { requestsPerMinute: flags.rpm }),
    ...(flags.tpm !== undefined && { tokensPerMinute: flags.tpm }),
    ...(flags['max-wait'] !== undefined && { maxWaitMs: flags['max-wait'] }),
  }
}

function endpoint({ flags, env }: ModelFromFlags): { url: string; apiKeyEnv?: string } {
  const url = flags['base-url'] ?? defaultBackendUrl(flags.api ?? 'chat', env)
  if (!URL.canParse(url) || !/^https?:/.test(url)) {
    throw new MillraceError('usage', `--base-url is a URL such as http://localhost:8000/v1, not ${shownUrl(url)}`)
  }
  const apiKeyEnv = flags['api-key-env']
  if (apiKeyEnv === undefined) return { url }
  namedKey('api-key-env', apiKeyEnv, env)
  return { url, apiKeyEnv }
}
