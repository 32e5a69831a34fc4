import type { MillraceError } from '../../errors/index.ts'
import type { ModelFacts } from '../../gateway/index.ts'
import type { BackendFacts, ModelConfig, NamedModelInput } from '../../inference/index.ts'
import { BackendSurvey } from './backend-survey.ts'
import type { Variables } from '../../kit/index.ts'

export interface FindModelsOptions {
  /** Urls, or `sim` for the built-in simulator. */
  readonly backends: readonly string[]
  /** What all of `backends` serve; without it, every model that they list. */
  readonly model?: string
  /** Models that are known by name, with backends of their own. */
  readonly models?: Readonly<Record<string, NamedModelInput>>
  readonly env: Variables
  /** What must not be shown if a backend says it, such as values that were filled in from variables. */
  readonly secrets?: readonly string[] | undefined
  readonly signal: AbortSignal
}

/** What a backend said when it was asked, or why it did not. */
export type Finding = {
  readonly backend: string
  /** What it is to serve: the model that it was configured for, or that all backends were said to serve. */
  readonly serves?: Pick<ModelConfig, 'name' | 'upstreamName' | 'api'>
} & (
  | { readonly facts: BackendFacts; readonly problem?: undefined }
  | { readonly facts?: undefined; readonly problem: MillraceError }
)

export interface FoundModels {
  readonly models: readonly ModelConfig[]
  /** By the model's name, as far as its backends told. */
  readonly facts: Readonly<Record<string, ModelFacts>>
  /** One for each backend that was asked. */
  readonly findings: readonly Finding[]
  /** With it a server asks those again that have not answered. */
  readonly survey: BackendSurvey
}

/**
 * Asks every backend what it is, all at once, and makes the models of what they answer. One that cannot be reached now is
 * awaited by the server that is opened with the `survey`. Throws if one refuses our key, or its url is wrong.
 */
export async function findModels(options: FindModelsOptions): Promise<FoundModels> {
  const survey = await BackendSurvey.begin(options)
  const { models, facts, findings } = survey
  return { models, facts, findings, survey }
}
