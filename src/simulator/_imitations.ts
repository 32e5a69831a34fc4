import { chatServer, messagesServer, responsesServer } from '../dialects/index.ts'
import { apiPaths, type ApiName } from '../schema/index.ts'
import { DialectApi } from './_dialect-api.ts'
import type { Controls } from './_control.ts'
import { countMessages, countResponses } from './_count-controls.ts'
import type { SimulatedApi } from './_simulated-api.ts'
import { GenerateApi } from './_generate-api.ts'
import { sglangControls } from './_sglang-controls.ts'
import { tokenFieldWriters } from './_token-field-writer.ts'
import { vllmControls } from './_vllm-controls.ts'
import type { ImitationName, SimulatorSettings } from './simulator-options.ts'

/** The endpoints of an imitated backend's server. */
export interface Imitation {
  /** The APIs by the path of their POST requests. */
  readonly apis: ReadonlyMap<string, SimulatedApi>
  /** Writes errors for paths that belong to no API. */
  readonly usualApi: SimulatedApi
  /** A header without which requests below `/v1` are refused. */
  readonly requiredHeader?: string
  readonly controls: Controls
  readonly modelList: (models: readonly string[], settings: SimulatorSettings) => object
}

const dialects = { chat: chatServer, responses: responsesServer, messages: messagesServer } as const

function apiOf(name: ImitationName, api: ApiName): SimulatedApi {
  return new DialectApi(dialects[api], tokenFieldWriters[name])
}

function apisOf(name: ImitationName, apis: readonly ApiName[]): [string, SimulatedApi][] {
  return apis.map((api) => [`/v1${apiPaths[api]}`, apiOf(name, api)])
}

/** A list of models in OpenAI's shape; engines add how long a context may be. */
function openAiModels(owner: string, isEngine: boolean): Imitation['modelList'] {
  return (models, { contextLength }) => ({
    object: 'list',
    data: models.map((id) => ({
      id,
      object: 'model',
      created: 0,
      owned_by: owner,
      ...(isEngine && { root: id, parent: null }),
      ...(isEngine && contextLength > 0 && { max_model_len: contextLength }),
    })),
  })
}

function anthropicModels(models: readonly string[]): object {
  const data = models.map((id) => ({ type: 'model', id, display_name: id, created_at: '1970-01-01T00:00:00Z' }))
  return { data, has_more: false, first_id: models[0] ?? null, last_id: models.at(-1) ?? null }
}

const everyApi = ['chat', 'responses', 'messages'] as const

export const imitations: Readonly<Record<ImitationName, Imitation>> = {
  vllm: {
    apis: new Map(apisOf('vllm', everyApi)),
    usualApi: apiOf('vllm', 'chat'),
    controls: vllmControls,
    modelList: openAiModels('vllm', true),
  },
  millrace: {
    apis: new Map(apisOf('millrace', everyApi)),
    usualApi: apiOf('millrace', 'chat'),
    controls: vllmControls,
    modelList: openAiModels('millrace', true),
  },
  sglang: {
    apis: new Map([...apisOf('sglang', everyApi), ['/generate', new GenerateApi()]]),
    usualApi: apiOf('sglang', 'chat'),
    controls: sglangControls,
    modelList: openAiModels('sglang', true),
  },
  openai: {
    apis: new Map(apisOf('openai', ['chat', 'responses'])),
    usualApi: apiOf('openai', 'chat'),
    controls: countResponses,
    modelList: openAiModels('openai', false),
  },
  anthropic: {
    apis: new Map(apisOf('anthropic', ['messages'])),
    usualApi: apiOf('anthropic', 'messages'),
    requiredHeader: 'anthropic-version',
    controls: countMessages,
    modelList: anthropicModels,
  },
}
