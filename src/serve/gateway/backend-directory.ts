import { isDeepStrictEqual } from 'node:util'
import { MillraceError } from '../../errors/index.ts'
import type { ModelFacts } from '../../gateway/index.ts'
import {
  type BackendFacts,
  type ModelConfig,
  resolveModelConfig,
  type ServedModel,
  shownUrl,
} from '../../inference/index.ts'
import { type Backoff, backoffMs, nearestName, Resource, sleep } from '../../kit/index.ts'
import {
  apiConflict,
  type BackendProbe,
  factsOf,
  type ProbeResult,
  type FindModelsOptions,
  gatewayDefaults,
  isUnusable,
  probeAt,
  probesOf,
  servedModels,
  withEngines,
  withoutUnusable,
} from './backend-models.ts'

const builtIn = 'sim'

interface ProbedBackend {
  readonly probe: BackendProbe
  result: ProbeResult
  /** What it last said it is, while a refused key, or no answer, is all that it has said since. */
  facts: BackendFacts | undefined
  isReachable: boolean
}

interface DirectoryParts {
  readonly options: Omit<FindModelsOptions, 'signal'>
  readonly known: readonly ModelConfig[]
  readonly given: readonly ProbedBackend[]
  readonly others: readonly ProbedBackend[]
}

/** All backends of a gateway, what each said when it was last asked, and the models that come of it. */
export class BackendDirectory {
  readonly #parts: DirectoryParts
  readonly #asked: readonly ProbedBackend[]

  private constructor(parts: DirectoryParts) {
    this.#parts = parts
    this.#asked = [...parts.given, ...parts.others]
  }

  /** Asks all of them at once. Throws if one says what does not mend itself: it would fail its part of the requests. */
  static async begin({ signal, ...options }: FindModelsOptions): Promise<BackendDirectory> {
    const { env } = options
    const named = Object.entries(options.models ?? {}).map(([name, config]) =>
      resolveModelConfig({
        model: name,
        models: { [name]: config },
        defaults: { ...gatewayDefaults, ...options.defaults },
        env,
      }),
    )
    const urls = options.backends.filter((backend) => backend !== builtIn)
    refuseMisspelt(urls)
    const ask = async (probe: BackendProbe): Promise<ProbedBackend> => {
      const result = await probe.run(signal)
      return { probe, result, facts: result.facts, isReachable: !result.problem }
    }
    const [given, others] = await Promise.all([
      Promise.all(urls.map((url) => ask(probeAt(url, options)))),
      Promise.all(named.flatMap((config) => probesOf(config, options)).map(ask)),
    ])
    const directory = new BackendDirectory({ options, known: [...named, ...simulated(options)], given, others })
    // A model that one does not know may be loaded later.
    const lasting = directory.unusable.find(({ code }) => code !== 'model_not_found')
    if (lasting) throw lasting
    const clash = directory.#clash()
    if (clash) throw clash
    if (directory.models.length === 0 && directory.awaited.length === 0) throw nothingServed(urls)
    return directory
  }

  /** Where none of its backends is of use, a model has them all: whoever asks for it is then told what is wrong. */
  get models(): readonly ModelConfig[] {
    const { usable } = this
    return this.#models().map((config, index) => {
      const best = usable[index]
      return withEngines(best && best.backends.length > 0 ? best : config, this.probeResults)
    })
  }

  /** The same without backends that are of no use. */
  get usable(): readonly ModelConfig[] {
    const { known, given, others } = this.#parts
    return this.#models().map((config) => withoutUnusable(config, resultsOf(known.includes(config) ? others : given)))
  }

  /** What is wrong with those that are of no use until somebody does something about it. */
  get unusable(): readonly MillraceError[] {
    return this.probeResults.filter(isUnusable).flatMap(({ problem }) => problem ?? [])
  }

  /** Whether a request that is sent now would find a backend. */
  isReachable(isActive: (backend: string) => boolean): boolean {
    if (this.#parts.known.some(({ simulator }) => simulator !== undefined)) return true
    return this.#asked.some(
      (asked) => !isUnusable(asked.result) && (asked.isReachable || isActive(asked.result.backend)),
    )
  }

  get facts(): Readonly<Record<string, ModelFacts>> {
    return factsOf(this.#models(), this.probeResults)
  }

  get probeResults(): readonly ProbeResult[] {
    return resultsOf(this.#asked)
  }

  get awaited(): readonly number[] {
    return this.probeResults.flatMap(({ problem }, index) => (problem ? [index] : []))
  }

  get unlisted(): number {
    const { options, given } = this.#parts
    return options.model === undefined ? given.filter((asked) => !listedBy(asked).facts).length : 0
  }

  /** Whether a backend has answered but did not say which facts about tokens its replies have, as when it was too busy. */
  lacksTokenFields(index: number): boolean {
    const { facts } = this.#at(index).result
    return facts !== undefined && facts.apis.includes('chat') && facts.tokenFields === undefined
  }

  /** Whether one that has answered lists other models by now, or refuses our key. No list, or an empty one, tells nothing. */
  async saysOtherwise(index: number, signal: AbortSignal): Promise<boolean> {
    const asked = this.#at(index)
    const { probe, result } = asked
    try {
      const listed = await probe.list(result, signal)
      asked.isReachable = true
      return listed.length > 0 && !isDeepStrictEqual(namesOf(listed), namesOf(result.facts?.models ?? []))
    } catch (error) {
      signal.throwIfAborted()
      // A backend that limits our rate has the key, and answers later.
      asked.isReachable = error instanceof MillraceError && error.code === 'model_rate_limited'
      return isRefusedKey(error)
    }
  }

  /** What the backend says now; undefined if it had answered and cannot for a while: then what it said holds. */
  async askAgain(index: number, signal: AbortSignal): Promise<ProbeResult | undefined> {
    const asked = this.#at(index)
    const result = await asked.probe.run(signal)
    asked.isReachable = !result.problem
    if (result.problem?.retryable && !asked.result.problem) return undefined
    const { backend, facts, serves } = result
    asked.result = result
    if (!result.problem?.retryable && !isRefusedKey(result.problem)) asked.facts = facts
    // Perhaps a router, whose own backends are not there yet.
    const isEmpty = !serves && facts?.models.length === 0
    const problem = this.#clash() ?? (isEmpty ? nothingServed([backend]) : undefined)
    if (problem) {
      asked.result = { backend, ...(serves && { serves }), problem }
      asked.facts = undefined
    }
    return asked.result
  }

  #at(index: number): ProbedBackend {
    const asked = this.#asked[index]
    if (!asked) throw new MillraceError('internal', `there is no backend ${index}`)
    return asked
  }

  #models(): ModelConfig[] {
    const { options, known } = this.#parts
    return [...known, ...servedModels(this.#listed, options)]
  }

  get #listed(): readonly ProbeResult[] {
    return this.#parts.given.map(listedBy)
  }

  #clash(): MillraceError | undefined {
    const names = this.#models().map(({ name }) => name)
    const twice = names.find((name, index) => names.indexOf(name) < index)
    if (twice === undefined) return apiConflict(this.#listed, this.#parts.options)
    return new MillraceError('config_invalid', `two models are called ${twice}; give one of them another name`)
  }
}

function resultsOf(asked: readonly ProbedBackend[]): readonly ProbeResult[] {
  return asked.map(({ result }) => result)
}

/** Names stay known when a key is not taken any more: whoever asks is told so, and no other model is asked instead. */
function listedBy({ result, facts }: ProbedBackend): ProbeResult {
  if (!facts) return result
  const { backend, serves } = result
  return { backend, facts, ...(serves && { serves }) }
}

function isRefusedKey(problem: unknown): boolean {
  return problem instanceof MillraceError && problem.code === 'model_auth'
}

function namesOf(models: readonly ServedModel[]): string[] {
  return models.map(({ id }) => id).toSorted()
}

function simulated({ backends, model, defaults, env }: DirectoryParts['options']): ModelConfig[] {
  if (!backends.includes(builtIn)) return []
  // Where there are others, the name that was given is theirs.
  const name = backends.every((backend) => backend === builtIn) ? (model ?? builtIn) : builtIn
  return [resolveModelConfig({ model: { name, simulator: {} }, defaults: { ...gatewayDefaults, ...defaults }, env })]
}

/** Only a single word, which cannot be a URL, is taken for a misspelt name of the simulator. */
function refuseMisspelt(urls: readonly string[]): void {
  const word = urls.find((url) => /^\w+$/.test(url) && nearestName(url, [builtIn]) !== undefined)
  if (word === undefined) return
  throw new MillraceError(
    'config_invalid',
    `"${word}" is not a valid backend URL; did you mean ${builtIn}, which is built in?`,
  )
}

function nothingServed(urls: readonly string[]): MillraceError {
  return urls.length === 0
    ? new MillraceError(
        'usage',
        'which backend? Add --backend <url> (backends), or models to the file of --config; --backend sim is built in and needs nothing',
      )
    : new MillraceError(
        'model_not_found',
        `${urls.map((url) => shownUrl(url)).join(', ')} lists no models; name the one it serves with --model (model)`,
      )
}

export interface FoundModels {
  readonly models: readonly ModelConfig[]
  readonly facts: Readonly<Record<string, ModelFacts>>
  readonly probeResults: readonly ProbeResult[]
  /** With it a server asks those again that have not answered. */
  readonly directory: BackendDirectory
}

/** Asks every backend what it is, and makes the models of what they answer. Throws if one refuses our key. */
export async function findModels(options: FindModelsOptions): Promise<FoundModels> {
  const directory = await BackendDirectory.begin(options)
  const { models, facts, probeResults } = directory
  return { models, facts, probeResults, directory }
}

/** A server that loads a model takes minutes, one that is only a little late must not be noticed. */
const schedule: Backoff = { firstMs: 500, factor: 2, maxMs: 10_000 }

const defaultListMs = 10_000

/** How often a backend is asked again whether its replies have tokens: the first reply of vLLM may take 40 s. */
const maxTokenQuestions = 12

interface BackendWatchOptions {
  readonly directory: BackendDirectory
  /** Hears of one that has answered, or serves others than before; the directory knows already what. */
  readonly onAnswer: (result: ProbeResult) => void
  readonly onProblem: (result: ProbeResult) => void
  readonly listMs?: number
  /** Whether a backend has or just had requests. It is not asked then: some servers break off a reply for another request. */
  readonly isActive?: (backend: string, withinMs: number) => boolean
  /** False: backends are asked until they have answered, and not after that. */
  readonly polls?: boolean
}

/** Asks each backend that has not answered, less and less often; one that has is asked for its list while it is idle. */
export class BackendWatch extends Resource {
  readonly #options: BackendWatchOptions
  readonly #watching: Promise<unknown>

  constructor(options: BackendWatchOptions) {
    super()
    this.#options = options
    this.#watching = Promise.all(options.directory.probeResults.map((_result, index) => this.#watch(index)))
  }

  protected async onClose(): Promise<void> {
    await this.#watching
  }

  async #watch(index: number): Promise<void> {
    try {
      await this.#follow(index)
    } catch (error) {
      if (this.isClosed) return
      const backend = this.#options.directory.probeResults[index]?.backend ?? ''
      this.#options.onProblem({ backend, problem: MillraceError.from(error, 'internal') })
    }
  }

  async #follow(index: number): Promise<void> {
    const { directory, onAnswer, onProblem, listMs = defaultListMs, isActive, polls = true } = this.#options
    const found = (): ProbeResult | undefined => directory.probeResults[index]
    let known = found()?.problem?.rawMessage
    let tries = 0
    let tokenQuestions = 0
    for (;;) {
      tries = found()?.problem ? tries + 1 : 0
      if (tries === 0 && !polls) return
      const lacksTokens = tries === 0 && directory.lacksTokenFields(index) && tokenQuestions < maxTokenQuestions
      const asked = lacksTokens ? tokenQuestions + 1 : tries
      await sleep(asked > 0 ? Math.min(backoffMs(schedule, asked), listMs) : listMs, this.closedSignal)
      if (tries === 0 && isActive?.(found()?.backend ?? '', listMs)) continue
      if (lacksTokens) tokenQuestions += 1
      else if (tries === 0 && !(await directory.saysOtherwise(index, this.closedSignal))) continue
      const result = await directory.askAgain(index, this.closedSignal)
      if (!result) continue
      const problem = result.problem?.rawMessage
      if (lacksTokens && directory.lacksTokenFields(index)) continue
      if (!result.problem) onAnswer(result)
      else if (problem !== known) onProblem(result)
      known = problem
    }
  }
}
