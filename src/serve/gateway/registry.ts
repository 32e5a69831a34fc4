import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { type Gateway, type IssuedKey, issuedKeySchema, type ModelFacts } from '../../gateway/index.ts'
import {
  type BackendFacts,
  engineOf,
  type ModelConfig,
  probeBackend,
  resolveModelConfig,
} from '../../inference/index.ts'
import { describeIssues, safeParse } from '../../schema/index.ts'
import type { AddressGuard } from './address-guard.ts'
import { gatewayDefaults } from './backend-models.ts'

const apis = z.enum(['chat', 'responses', 'messages'])
const engines = z.enum(['vllm', 'sglang'])

/** What is registered, as a client writes it. */
export interface BackendRegistration {
  readonly url: string
  readonly model?: string
  readonly api?: z.output<typeof apis>
  readonly engine?: z.output<typeof engines>
  readonly apiKey?: string
}

/** A model at a registered backend, as it was found when it was registered. */
const entrySchema = z.object({
  url: z.string(),
  /** The variable that holds its key. The key itself is not kept. */
  apiKeyEnv: z.string(),
  model: z.string(),
  api: apis,
  engine: engines.exactOptional(),
  capturesTokens: z.boolean().exactOptional(),
  contextLength: z.number().exactOptional(),
})

type Entry = z.output<typeof entrySchema>

const fileSchema = z.object({ backends: z.array(entrySchema), keys: z.array(issuedKeySchema) })

export interface RegistrationAnswer {
  readonly url: string
  readonly ok: boolean
  readonly id?: string
  readonly models?: readonly string[]
  readonly error?: string
}

export interface Offered {
  readonly models: readonly ModelConfig[]
  readonly facts: Readonly<Record<string, ModelFacts>>
  readonly awaited?: number
}

interface RegistryOptions {
  readonly folder: string
  readonly guard: AddressGuard
  /** Where backends' keys are looked up. Keys of registered backends are put there. */
  readonly env: Record<string, string | undefined>
  /** What the gateway serves without registered backends. */
  readonly base: () => Offered
}

const file = 'registry.json'
/** A request may have just found a model that is removed. */
const retireAfterMs = 100
/** A registered backend without a key must not be sent the gateway's own one. */
const noKeyEnv = 'MILLRACE_BACKEND_KEY'

/** The backends and keys that were added while the gateway ran. A file keeps them: backends without keys, keys as digests. */
export class Registry {
  readonly #options: RegistryOptions
  #entries: readonly Entry[] = []
  #gateway: Gateway | undefined
  #keyCount = 0
  readonly keys: readonly IssuedKey[]

  /** Reads what an earlier launch has kept. */
  constructor(options: RegistryOptions) {
    this.#options = options
    const kept = readKept(join(options.folder, file))
    this.#entries = kept.backends
    this.keys = kept.keys
  }

  has(url: string): boolean {
    return this.#entries.some((entry) => entry.url === url)
  }

  /** From now on changes reach the gateway. */
  serve(gateway: Gateway): void {
    this.#gateway = gateway
  }

  /** All that is served: models of the same name have the registered backends, too. */
  get offer(): Offered {
    const { env, base } = this.#options
    const { models, facts, ...awaited } = base()
    const byName = new Map(models.map((model) => [model.name, model]))
    const allFacts: Record<string, ModelFacts> = { ...facts }
    for (const { url, apiKeyEnv, model: name, api, engine, capturesTokens, contextLength } of this.#entries) {
      const backend = { url, apiKeyEnv, headers: {}, ...(engine && { engine }) }
      const known = byName.get(name)
      if (known?.backends.some((each) => each.url === url) || known?.simulator) continue
      const model = { name, api, backends: [backend] }
      const config = known
        ? { ...known, backends: [...known.backends, backend] }
        : resolveModelConfig({ model, defaults: gatewayDefaults, env, isUnasked: true })
      byName.set(name, config)
      allFacts[name] ??= {
        ...(capturesTokens !== undefined && { capturesTokens }),
        ...(contextLength !== undefined && { contextLength }),
      }
    }
    return { models: [...byName.values()], facts: allFacts, ...awaited }
  }

  /** Asks all of them at once what they are. Those that cannot be reached, or used, are not registered. */
  async register(wanted: readonly BackendRegistration[], signal: AbortSignal): Promise<RegistrationAnswer[]> {
    const { guard } = this.#options
    await Promise.all(wanted.map(({ url }) => guard.check(url)))
    const found = await Promise.all(wanted.map((each) => this.#find(each, signal)))
    const added = found.flatMap(({ entries }) => entries)
    const isReplaced = (entry: Entry): boolean =>
      added.some(({ url, model }) => url === entry.url && model === entry.model)
    await this.#change([...this.#entries.filter((entry) => !isReplaced(entry)), ...added])
    return found.map(({ answer }) => this.#withId(answer))
  }

  /** Resolves when requests on their way to it have ended, and its connections are closed. */
  async remove(name: string): Promise<void> {
    const { fleet } = this.#served
    const url = fleet.urlOf(name)
    if (!this.has(url)) {
      const message = `backend ${name} was not registered here: it is in the configuration of the gateway`
      throw new MillraceError('usage', message, { data: { status: 409 } })
    }
    await fleet.resume({ backends: [name] })
    await this.#change(this.#entries.filter((entry) => entry.url !== url))
    await this.#served.backendsClosed()
  }

  #withId(answer: RegistrationAnswer): RegistrationAnswer {
    const id = answer.ok ? this.#served.fleet.idOf(answer.url) : undefined
    return id === undefined ? answer : { ...answer, id }
  }

  save(): void {
    const path = join(this.#options.folder, file)
    const kept = { backends: this.#entries, keys: this.#served.keys.issued }
    writeFileSync(`${path}.new`, `${JSON.stringify(kept, undefined, 2)}\n`, { mode: 0o600 })
    renameSync(`${path}.new`, path)
  }

  get #served(): Gateway {
    if (this.#gateway) return this.#gateway
    throw new MillraceError('internal', 'the registry was used before its gateway was open')
  }

  async #change(entries: readonly Entry[]): Promise<void> {
    const before = this.#entries
    this.#entries = entries
    try {
      this.#served.offer({ ...this.offer, retireAfterMs })
    } catch (error) {
      this.#entries = before
      throw error
    }
    this.save()
  }

  async #find(
    wanted: BackendRegistration,
    signal: AbortSignal,
  ): Promise<{ readonly entries: readonly Entry[]; readonly answer: RegistrationAnswer }> {
    const { env, guard } = this.#options
    const { url, model } = wanted
    const known = this.#entries.find((entry) => entry.url === url && (model === undefined || entry.model === model))
    const apiKeyEnv = this.#keptKey(wanted, known)
    try {
      const asked = { env, signal, lookup: guard.lookup, ...(wanted.api && { api: wanted.api }) }
      const facts = await probeBackend(
        { url, apiKeyEnv, headers: {} },
        { ...asked, ...(model !== undefined && { model }) },
      )
      const names = model === undefined ? facts.models.map(({ id }) => id) : [model]
      if (names.length === 0)
        throw new MillraceError('model_not_found', `${url} lists no models; name the one it serves`)
      const entries = names.map((name) => entryOf(wanted, { facts, name, apiKeyEnv }))
      for (const entry of entries) this.#refuseConflict(entry)
      return { entries, answer: { url, ok: true, models: names } }
    } catch (error) {
      signal.throwIfAborted()
      return { entries: [], answer: { url, ok: false, error: MillraceError.from(error, 'internal').rawMessage } }
    }
  }

  /** The variable of its key: the one it has already if the key is the same. */
  #keptKey({ apiKey }: BackendRegistration, known: Entry | undefined): string {
    const { env } = this.#options
    if (apiKey === undefined) return known?.apiKeyEnv ?? noKeyEnv
    if (known && env[known.apiKeyEnv] === apiKey) return known.apiKeyEnv
    this.#keyCount += 1
    const name = `${noKeyEnv}_${Date.now()}_${this.#keyCount}`
    env[name] = apiKey
    return name
  }

  #refuseConflict({ model, api }: Entry): void {
    const known = this.offer.models.find(({ name }) => name === model)
    if (known && known.api !== api) {
      throw new MillraceError('usage', `model ${model} is served in ${known.api}, and this backend speaks ${api}`)
    }
  }
}

function entryOf(
  { url, api, engine }: BackendRegistration,
  { facts, name, apiKeyEnv }: { readonly facts: BackendFacts; readonly name: string; readonly apiKeyEnv: string },
): Entry {
  const found = engine ?? engineOf(facts.kind)
  const { tokenFields } = facts
  const contextLength = facts.models.find(({ id }) => id === name)?.contextLength
  return {
    url,
    apiKeyEnv,
    model: name,
    api: api ?? (facts.apis.includes('chat') ? 'chat' : (facts.apis[0] ?? 'chat')),
    ...(found && { engine: found }),
    ...(tokenFields && { capturesTokens: tokenFields.ids && tokenFields.logprobs }),
    ...(contextLength !== undefined && { contextLength }),
  }
}

function readKept(path: string): z.output<typeof fileSchema> {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { backends: [], keys: [] }
    throw new MillraceError('store_failed', `${path} cannot be read`, { cause: error })
  }
  const checked = safeParse(fileSchema, JSON.parse(text))
  if (checked.success) return checked.data
  throw new MillraceError('store_failed', `${path} is damaged: ${describeIssues(checked.error.issues)}; remove it`)
}
