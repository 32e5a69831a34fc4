import { chatServer, messagesServer, responsesServer } from '../dialects/index.ts'
import { apiPaths, type ApiName } from '../schema/index.ts'
import { ApiDoor } from './_api-door.ts'
import type { Controls } from './_control.ts'
import { countMessages, countResponses } from './_count-controls.ts'
import type { Door } from './_door.ts'
import { GenerateDoor } from './_generate-door.ts'
import { sglangControls } from './_sglang-controls.ts'
import { tokenFields } from './_token-fields.ts'
import { vllmControls } from './_vllm-controls.ts'
import type { ImitationName, SimulatorSettings } from './simulator-options.ts'

/** The endpoints of an imitated backend's server. */
export interface Imitation {
  /** The doors by the path of their POST requests. */
  readonly doors: ReadonlyMap<string, Door>
  /** Writes errors for paths that have no door. */
  readonly usualDoor: Door
  /** A header without which requests below `/v1` are refused. */
  readonly requiredHeader?: string
  readonly controls: Controls
  readonly modelList: (models: readonly string[], settings: SimulatorSettings) => object
}

const dialects = { chat: chatServer, responses: responsesServer, messages: messagesServer } as const

function apiDoor(name: ImitationName, api: ApiName): Door {
  return new ApiDoor(dialects[api], tokenFields[name])
}

function apiDoors(name: ImitationName, apis: readonly ApiName[]): [string, Door][] {
  return apis.map((api) => [`/v1${apiPaths[api]}`, apiDoor(name, api)])
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
    doors: new Map(apiDoors('vllm', everyApi)),
    usualDoor: apiDoor('vllm', 'chat'),
    controls: vllmControls,
    modelList: openAiModels('vllm', true),
  },
  sglang: {
    doors: new Map([...apiDoors('sglang', everyApi), ['/generate', new GenerateDoor()]]),
    usualDoor: apiDoor('sglang', 'chat'),
    controls: sglangControls,
    modelList: openAiModels('sglang', true),
  },
  openai: {
    doors: new Map(apiDoors('openai', ['chat', 'responses'])),
    usualDoor: apiDoor('openai', 'chat'),
    controls: countResponses,
    modelList: openAiModels('openai', false),
  },
  anthropic: {
    doors: new Map(apiDoors('anthropic', ['messages'])),
    usualDoor: apiDoor('anthropic', 'messages'),
    requiredHeader: 'anthropic-version',
    controls: countMessages,
    modelList: anthropicModels,
  },
}
