import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { proxyFor } from '../http/index.ts'
import { headerSecrets, Redaction, urlSecrets, type Variables } from '../kit/index.ts'
import { type ApiName, closedObject, jsonObjectSchema } from '../schema/index.ts'

const priceSchema = closedObject({
  input: z.number().min(0),
  cachedInput: z.number().min(0).exactOptional(),
  output: z.number().min(0),
})

export type Price = z.infer<typeof priceSchema>

const backendConfigSchema = closedObject({
  /** Up to and including the version, as clients write it: `http://localhost:8000/v1`. */
  url: z.string(),
  /** The name of the environment variable that holds the key; never the key itself, so that a config can be stored. */
  apiKeyEnv: z.string().default('OPENAI_API_KEY'),
  headers: z.record(z.string(), z.string()).default({}),
  /** PEM file with the certificate authority of a private endpoint; NODE_EXTRA_CA_CERTS works too. */
  caFile: z.string().exactOptional(),
  /** The server software, which decides how it is asked for tokens. A gateway finds out by itself; the default is vLLM's way. */
  engine: z.enum(['vllm', 'sglang']).exactOptional(),
  /**
   * What the server's log-probabilities are: those of the model (`raw`), or those after temperature, penalties and masks
   * (`processed`). Default: what the engine does unless it is started otherwise, `raw` for vLLM and `processed` for SGLang.
   */
  logprobs: z.enum(['raw', 'processed']).exactOptional(),
})

export type BackendConfig = z.infer<typeof backendConfigSchema>

const routingPolicies = ['sticky', 'round-robin', 'least-loaded', 'consistent-hash', 'power-of-two'] as const

const routingSchema = z.union([
  z.enum(routingPolicies),
  closedObject({
    policy: z.literal('sticky'),
    /** In requests of average length, and as a multiple of the mean: a session leaves its backend above both. */
    budget: closedObject({ absolute: z.number().min(0), relative: z.number().min(1) }),
  }),
])

export type RoutingName = (typeof routingPolicies)[number]
export type RoutingConfig = z.infer<typeof routingSchema>

/** Closed, because a misspelt limit that is silently ignored shows only when it should have held. */
export const modelConfigSchema = closedObject({
  name: z.string(),
  /** The backends' name for the model, if it differs. */
  upstreamName: z.string().exactOptional(),
  /** Either real backends or the simulator (its options), never both. */
  backends: z.array(backendConfigSchema).default([]),
  simulator: jsonObjectSchema.exactOptional(),
  api: z.enum(['chat', 'responses', 'messages']).default('chat'),
  stream: z.boolean().default(false),
  /**
   * `exact`: prompts are written as token ids here, from the model's chat template, and replies are read from their ids. The
   * backends must take ids. Default: backends render the conversation, and report its tokens if they are asked to.
   */
  tokens: z.enum(['exact']).exactOptional(),
  /** The folder of the model's tokenizer and chat template. Default: the folder that the backend names, if it is on this machine. */
  tokenizer: z.string().exactOptional(),
  /** Whether earlier reasoning goes back to the backend with the history. */
  sendReasoning: z.boolean().default(true),
  price: priceSchema.exactOptional(),
  maxConcurrency: z.number().int().positive().default(64),
  adaptive: z.boolean().default(true),
  requestsPerMinute: z.number().positive().exactOptional(),
  tokensPerMinute: z.number().positive().exactOptional(),
  maxTries: z.number().int().positive().default(6),
  /** How the backend of a request is chosen, if there are several. Default: `sticky`. */
  routing: routingSchema.exactOptional(),
  /**
   * The longest one call waits in all for a backend to take it: for a permit, a rate limit, between tries, parked. Time on
   * the wire does not count. Default: no limit of its own, or five minutes in a gateway.
   */
  maxWaitMs: z.number().positive().exactOptional(),
  /** The longest part of that which a call waits because backends answer 429. Default: no limit, or a minute in a gateway. */
  maxRateLimitWaitMs: z.number().positive().exactOptional(),
  /** The longest a call waits while all backends are paused; it counts as a wait for a backend, too. Default: five minutes. */
  maxPauseWaitMs: z.number().positive().exactOptional(),
  /** What calls do then. Default: `wait`. */
  whenPaused: z.enum(['wait', 'refuse']).exactOptional(),
  connectTimeoutMs: z.number().positive().default(10_000),
  /** The time for one try, from the first byte sent to the last received. */
  requestTimeoutMs: z.number().positive().default(600_000),
  /** The longest silence between two pieces of a stream. */
  idleTimeoutMs: z.number().positive().default(120_000),
})

export type ModelConfig = z.infer<typeof modelConfigSchema>
export type ModelConfigInput = z.input<typeof modelConfigSchema>

export const namedModelSchema = modelConfigSchema.partial({ name: true })

/** A model as it was written under its key. A `name` inside is what its backends call it. */
export type NamedModelInput = z.input<typeof namedModelSchema>

export function isOpenAiHost(hostname: string): boolean {
  return hostname === 'api.openai.com' || hostname.endsWith('.api.openai.com') || isAzureHost(hostname)
}

export function isAnthropicHost(hostname: string): boolean {
  return hostname === 'api.anthropic.com'
}

export function isMistralHost(hostname: string): boolean {
  return hostname === 'api.mistral.ai'
}

function isAzureHost(hostname: string): boolean {
  return hostname.endsWith('.openai.azure.com')
}

/** The provider at that host, in OpenTelemetry's words, if it is a known one. */
export function providerAt(hostname: string): string | undefined {
  if (isAzureHost(hostname)) return 'azure.ai.openai'
  if (isMistralHost(hostname)) return 'mistral_ai'
  if (isAnthropicHost(hostname)) return 'anthropic'
  return isOpenAiHost(hostname) ? 'openai' : undefined
}

export function providerOfApi(api: ApiName): string {
  return api === 'messages' ? 'anthropic' : 'openai'
}

/** The key that servers without authentication are sent; vLLM's documentation made it the custom. */
const noKey = 'EMPTY'

const anthropicVersion = '2023-06-01'

/** The usual headers (content type, client, key), with those of the backend's config in place of usual ones of the same name. */
export function requestHeaders(
  backend: BackendConfig,
  env: Variables,
  { api, accept }: { readonly api: ApiName; readonly accept: string },
): string[] {
  const names = headerNames(backend)
  const key = env[backend.apiKeyEnv] || noKey
  const usual: [name: string, value: string][] = [
    ['content-type', 'application/json'],
    ['accept', accept],
    ['user-agent', 'millrace'],
  ]
  if (api === 'messages') usual.push(['anthropic-version', anthropicVersion])
  if (api === 'messages' && !names.has('authorization')) usual.push(['x-api-key', key])
  // Anthropic takes a key only in `x-api-key`. Other servers of its API that also serve OpenAI's look for it in `authorization`.
  const isBearer = api !== 'messages' || !(names.has('x-api-key') || isAnthropicHost(backendUrl(backend.url).hostname))
  if (isBearer) usual.push(['authorization', `Bearer ${key}`])
  return [...usual.filter(([name]) => !names.has(name)), ...Object.entries(backend.headers)].flat()
}

export function lacksKey(backend: BackendConfig, env: Variables): boolean {
  const names = headerNames(backend)
  return !env[backend.apiKeyEnv] && !['authorization', 'api-key', 'x-api-key'].some((name) => names.has(name))
}

export function headerNames({ headers }: BackendConfig): ReadonlySet<string> {
  return new Set(Object.keys(headers).map((name) => name.toLowerCase()))
}

export function backendUrl(text: string): URL {
  const url = URL.parse(text)
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new MillraceError(
      'config_invalid',
      `"${shownUrl(text)}" is not a valid backend URL. Write it like http://localhost:8000/v1.`,
    )
  }
  if (url.username !== '' || url.password !== '') {
    const step = 'Put the key into an environment variable and name that with apiKeyEnv.'
    throw new MillraceError('config_invalid', `the url of backend ${url.host} contains credentials. ${step}`)
  }
  return url
}

/** The secrets in the config of a backend: its key, the values of all its headers, and those in its url. */
export function backendSecrets({ url, apiKeyEnv, headers }: BackendConfig, env: Variables): string[] {
  const parsed = URL.parse(url)
  const key = env[apiKeyEnv] ?? ''
  return [key, ...Object.values(headers).flatMap(headerSecrets), ...(parsed ? urlSecrets(parsed) : [])]
}

/**
 * Takes a backend's secrets out of what it says: a server may repeat the headers of a request. `secrets` are others, such as
 * values filled in from variables. `names` of the model are none, even if they were filled in.
 */
export function backendRedaction(
  backend: BackendConfig,
  env: Variables,
  { secrets = [], names = [] }: { secrets?: readonly string[] | undefined; names?: readonly string[] },
): Redaction {
  const url = new URL(backend.url)
  const proxy = proxyFor(url, env)
  const others = withoutAddress(secrets, url).filter((value) => !names.some((name) => name.includes(value)))
  return new Redaction([
    ...backendSecrets(backend, env),
    ...(proxy === undefined ? [] : urlSecrets(new URL(proxy))),
    ...others,
  ])
}

/** The url of a backend as it is shown: without its query and password, and without secrets in its path. */
export function shownUrl(text: string, secrets: readonly string[] = []): string {
  const plain = text.replace(/\?.*$/, '').replace(/(?<=^|:\/\/)[^/]*@/, '')
  const url = URL.parse(text)
  return url ? new Redaction(withoutAddress(secrets, url)).text(plain) : plain
}

/** The values without the host and port of a url, which are shown: a message must say which server it is about. */
function withoutAddress(values: readonly string[], { host }: URL): string[] {
  return values
    .filter((value) => value !== '' && !host.includes(value.toLowerCase()))
    .map((value) => {
      const at = value.toLowerCase().indexOf(host)
      return at === -1
        ? value
        : value
            .slice(at + host.length)
            .replace(/\?.*$/, '')
            .replace(/\/+$/, '')
    })
}
