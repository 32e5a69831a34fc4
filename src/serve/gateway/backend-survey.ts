import { isDeepStrictEqual } from 'node:util'
import { MillraceError } from '../../errors/index.ts'
import type { ModelFacts } from '../../gateway/index.ts'
import { nearestName } from '../../kit/index.ts'
import {
  resolveModelConfig,
  shownUrl,
  type BackendFacts,
  type ModelConfig,
  type ServedModel,
} from '../../inference/index.ts'
import {
  factsOf,
  gatewayDefaults,
  isUnusable,
  servedModels,
  tornModel,
  withEngines,
  withoutUnusable,
} from './_models-of-findings.ts'
import { questionsAbout, questionTo, type BackendQuestion } from './_probe-backends.ts'
import type { Finding, FindModelsOptions } from './gateway-backends.ts'

const builtIn = 'sim'

interface AskedBackend {
  readonly question: BackendQuestion
  finding: Finding
  /** What it last said it is, while a refused key, or no answer, is all that it has said since. */
  facts: BackendFacts | undefined
}

interface SurveyParts {
  readonly options: Omit<FindModelsOptions, 'signal'>
  /** Models that need no answer to be known. */
  readonly known: readonly ModelConfig[]
  /** Backends of which nothing but the url was said. */
  readonly given: readonly AskedBackend[]
  /** The backends of `known`. */
  readonly others: readonly AskedBackend[]
}

/** All backends of a gateway, what each said when it was last asked, and the models that come of it. */
export class BackendSurvey {
  readonly #parts: SurveyParts
  readonly #asked: readonly AskedBackend[]

  private constructor(parts: SurveyParts) {
    this.#parts = parts
    this.#asked = [...parts.given, ...parts.others]
  }

  /**
   * Asks all of them, at once. One that may answer later is awaited; throws if one refuses our key, or says anything else
   * that does not mend itself: in the rotation it would fail its part of the requests.
   */
  static async begin({ signal, ...options }: FindModelsOptions): Promise<BackendSurvey> {
    const { env } = options
    const named = Object.entries(options.models ?? {}).map(([name, config]) =>
      resolveModelConfig({ model: name, models: { [name]: config }, defaults: gatewayDefaults, env }),
    )
    const urls = options.backends.filter((backend) => backend !== builtIn)
    refuseMisspelt(urls)
    const ask = async (question: BackendQuestion): Promise<AskedBackend> => {
      const finding = await question.ask(signal)
      return { question, finding, facts: finding.facts }
    }
    const [given, others] = await Promise.all([
      Promise.all(urls.map((url) => ask(questionTo(url, options)))),
      Promise.all(named.flatMap((config) => questionsAbout(config, options)).map(ask)),
    ])
    const survey = new BackendSurvey({ options, known: [...named, ...simulated(options)], given, others })
    // A model that one does not know may be loaded later.
    const lasting = survey.unusable.find(({ code }) => code !== 'model_not_found')
    if (lasting) throw lasting
    const clash = survey.#clash()
    if (clash) throw clash
    if (survey.models.length === 0 && survey.awaited.length === 0) throw nothingServed(urls)
    return survey
  }

  /** Where none of its backends is of use, a model has them all: whoever asks for it is then told what is wrong. */
  get models(): readonly ModelConfig[] {
    const { usable } = this
    return this.#models().map((config, place) => {
      const best = usable[place]
      return withEngines(best && best.backends.length > 0 ? best : config, this.findings)
    })
  }

  /** The same without backends that are of no use. */
  get usable(): readonly ModelConfig[] {
    const { known, given, others } = this.#parts
    return this.#models().map((config) => withoutUnusable(config, findingsOf(known.includes(config) ? others : given)))
  }

  /** What is wrong with those that are of no use until somebody does something about it. */
  get unusable(): readonly MillraceError[] {
    return this.findings.filter(isUnusable).flatMap(({ problem }) => problem ?? [])
  }

  /** By the model's name, as far as its backends told. */
  get facts(): Readonly<Record<string, ModelFacts>> {
    return factsOf(this.#models(), this.findings)
  }

  /** One for each backend. */
  get findings(): readonly Finding[] {
    return findingsOf(this.#asked)
  }

  /** The places, in `findings`, of those that have not answered so far. */
  get awaited(): readonly number[] {
    return this.findings.flatMap(({ problem }, place) => (problem ? [place] : []))
  }

  /** How many of those have yet to say what they serve. */
  get unlisted(): number {
    const { options, given } = this.#parts
    return options.model === undefined ? given.filter((asked) => !listedBy(asked).facts).length : 0
  }

  /** Whether a backend has answered but did not say which facts about tokens its replies have, as when it was too busy. */
  lacksTokenFields(place: number): boolean {
    const { facts } = this.#at(place).finding
    return facts !== undefined && facts.apis.includes('chat') && facts.tokenFields === undefined
  }

  /** Whether one that has answered lists other models by now, or refuses our key. No list, or an empty one, tells nothing. */
  async saysOtherwise(place: number, signal: AbortSignal): Promise<boolean> {
    const { question, finding } = this.#at(place)
    try {
      const listed = await question.list(finding, signal)
      return listed.length > 0 && !isDeepStrictEqual(namesOf(listed), namesOf(finding.facts?.models ?? []))
    } catch (error) {
      signal.throwIfAborted()
      return isRefusedKey(error)
    }
  }

  /**
   * What the backend at this place says now, with which the above may change; undefined if it had answered and cannot
   * now, for a while: then what it said holds. Rejects only if the signal aborts.
   */
  async askAgain(place: number, signal: AbortSignal): Promise<Finding | undefined> {
    const asked = this.#at(place)
    const finding = await asked.question.ask(signal)
    if (finding.problem?.retryable && !asked.finding.problem) return undefined
    const { backend, facts, serves } = finding
    asked.finding = finding
    if (!finding.problem?.retryable && !isRefusedKey(finding.problem)) asked.facts = facts
    // Perhaps a router, whose own backends are not there yet.
    const isEmpty = !serves && facts?.models.length === 0
    const problem = this.#clash() ?? (isEmpty ? nothingServed([backend]) : undefined)
    if (problem) {
      asked.finding = { backend, ...(serves && { serves }), problem }
      asked.facts = undefined
    }
    return asked.finding
  }

  #at(place: number): AskedBackend {
    const asked = this.#asked[place]
    if (!asked) throw new MillraceError('internal', `there is no backend ${place}`)
    return asked
  }

  #models(): ModelConfig[] {
    const { options, known } = this.#parts
    return [...known, ...servedModels(this.#listed, options)]
  }

  get #listed(): readonly Finding[] {
    return this.#parts.given.map(listedBy)
  }

  /** Why not all of them can be served side by side. */
  #clash(): MillraceError | undefined {
    const names = this.#models().map(({ name }) => name)
    const twice = names.find((name, place) => names.indexOf(name) < place)
    return twice === undefined ? tornModel(this.#listed, this.#parts.options) : calledTwice(twice)
  }
}

function findingsOf(asked: readonly AskedBackend[]): readonly Finding[] {
  return asked.map(({ finding }) => finding)
}

/** Names stay known when a key is not taken any more: whoever asks is told so, and no other model is asked instead. */
function listedBy({ finding, facts }: AskedBackend): Finding {
  if (!facts) return finding
  const { backend, serves } = finding
  return { backend, facts, ...(serves && { serves }) }
}

function isRefusedKey(problem: unknown): boolean {
  return problem instanceof MillraceError && problem.code === 'model_auth'
}

function namesOf(models: readonly ServedModel[]): string[] {
  return models.map(({ id }) => id).toSorted()
}

function simulated({ backends, model, env }: SurveyParts['options']): ModelConfig[] {
  if (!backends.includes(builtIn)) return []
  // Where there are others, the name that was given is theirs.
  const name = backends.every((backend) => backend === builtIn) ? (model ?? builtIn) : builtIn
  return [resolveModelConfig({ model: { name, simulator: {} }, defaults: gatewayDefaults, env })]
}

/** One word is no url, and only one word stands for something else. */
function refuseMisspelt(urls: readonly string[]): void {
  const word = urls.find((url) => /^\w+$/.test(url) && nearestName(url, [builtIn]) !== undefined)
  if (word === undefined) return
  throw new MillraceError(
    'config_invalid',
    `"${word}" is no url of a backend; did you mean ${builtIn}, which is built in?`,
  )
}

function calledTwice(name: string): MillraceError {
  return new MillraceError('config_invalid', `two models are called ${name}; give one of them another name`)
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
