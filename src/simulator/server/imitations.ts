import { chatServer, type CountingDialect, messagesServer, readWhole, responsesServer } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { type ApiName, apiPaths, countPaths, type JsonObject } from '../../schema/index.ts'
import { DialectApi, type SimulatedApi } from '../apis/dialect-api.ts'
import { GenerateApi } from '../apis/generate-api.ts'
import { IdsApi, type IdsPath } from '../apis/ids-api.ts'
import { tokenFieldWriters } from '../apis/token-fields.ts'
import type { ImitationName, SimulatorOptions } from '../engine/options.ts'
import { type PauseMode, pauseModes } from '../engine/simulated-engine.ts'
import type { Simulator } from '../engine/simulator.ts'

export interface Imitation {
  readonly apis: ReadonlyMap<string, SimulatedApi>
  readonly usualApi: SimulatedApi
  readonly requiredHeader?: string
  readonly routes: Controls
  /** With which weight updates pause the engine, and name their version. */
  readonly controls?: Controls
  readonly modelList: (models: readonly string[], simulator: Simulator) => object
}

const dialects = { chat: chatServer, responses: responsesServer, messages: messagesServer } as const

function apiOf(name: ImitationName, api: ApiName): SimulatedApi {
  return new DialectApi(dialects[api], tokenFieldWriters[name])
}

function apisOf(name: ImitationName, apis: readonly ApiName[]): [string, SimulatedApi][] {
  return apis.map((api) => [`/v1${apiPaths[api]}`, apiOf(name, api)])
}

function idsApis(name: ImitationName, paths: readonly IdsPath[]): [string, SimulatedApi][] {
  return paths.map((path) => [path, new IdsApi(path, tokenFieldWriters[name].hasVersions)])
}

function openAiModels(owner: string, isEngine: boolean): Imitation['modelList'] {
  return (models, { shownContextLength: length, vocabulary }) => ({
    object: 'list',
    data: models.map((id) => ({
      id,
      object: 'model',
      created: 0,
      owned_by: owner,
      ...(isEngine && { root: vocabulary.folder ?? id, parent: null }),
      ...(isEngine && length !== undefined && { max_model_len: length }),
    })),
  })
}

function anthropicModels(models: readonly string[]): object {
  const data = models.map((id) => ({ type: 'model', id, display_name: id, created_at: '1970-01-01T00:00:00Z' }))
  return { data, has_more: false, first_id: models[0] ?? null, last_id: models.at(-1) ?? null }
}

const everyApi = ['chat', 'responses', 'messages'] as const

interface ControlCall {
  readonly simulator: Simulator
  readonly stats: SimulatorStats
  readonly models: readonly string[]
  readonly query: URLSearchParams
  readonly body: JsonObject
}

/** A text is sent as it is, anything else as JSON. */
export type Control = (call: ControlCall) => object | string | Promise<object>

export type Controls = Readonly<Record<string, Control>>

function changeVersion({ simulator, body }: ControlCall): string {
  const { new_version: version } = body
  if (typeof version !== 'string') throw invalid('new_version is a text: the version of the new weights')
  simulator.change({ weightVersion: version })
  return version
}

function invalid(message: string): MillraceError {
  return new MillraceError('config_invalid', message, { data: { status: 400 } })
}

export interface SimulatorStats {
  readonly requests: number
  readonly inFlight: number
  /** Requests whose client went away before the answer was complete. */
  readonly aborted: number
  readonly byStatus: Readonly<Record<string, number>>
}

export const simControls: Controls = {
  'GET /health': () => ({ status: 'ok' }),
  'GET /sim/stats': ({ stats }) => stats,
  'GET /sim/settings': ({ simulator }) => simulator.settings,
  'POST /sim/settings': changeSettings,
  'GET /sim/emitted': ({ simulator, query }) => simulator.emitted(query.get('session') ?? undefined),
}

/** Takes any of the simulator's options, and `overload: true` or `false` until further notice. */
function changeSettings({ simulator, body }: ControlCall): object {
  const { overload, ...rest } = body
  const options: SimulatorOptions = typeof overload === 'boolean' ? rest : body
  simulator.change(options)
  if (typeof overload === 'boolean') simulator.setOverload(overload)
  return simulator.settings
}

const countMessages: Controls = { [`POST /v1${countPaths.messages}`]: counted(messagesServer.counting) }

const countResponses: Controls = { [`POST /v1${countPaths.responses}`]: counted(responsesServer.counting) }

function counted(dialect: CountingDialect): Control {
  return ({ simulator, body }) => dialect.whole(simulator.vocabulary.promptTokens(readWhole(dialect, body)))
}

function tokenize({ simulator, body }: ControlCall): object {
  const { vocabulary, shownContextLength: length } = simulator
  const { prompt } = body
  const ids =
    typeof prompt === 'string'
      ? vocabulary.encode(prompt)
      : vocabulary.prompt(chatServer.read({ model: 'any', ...body }))
  return { count: ids.length, tokens: Array.from(ids), ...(length !== undefined && { max_model_len: length }) }
}

/** The metrics that say how much an engine has to do, in Prometheus' text format and with the names of that engine. */
function engineMetrics(names: {
  readonly kvUsage: string
  readonly running: string
  readonly queued: string
}): Control {
  return ({ simulator: { engine, settings }, models }) => {
    const { prefixCacheTokens: room } = settings
    const kvUsage = room === 0 ? 0 : Math.min(1, engine.contextTokens / room)
    const gauges = [
      [names.kvUsage, kvUsage],
      [names.running, engine.running],
      [names.queued, engine.queued],
    ] as const
    return gauges
      .map(([name, value]) => `# TYPE ${name} gauge\n${name}{model_name="${models[0] ?? ''}"} ${value}\n`)
      .join('')
  }
}

/** vLLM has them only if it was started in its development mode. */
const vllmControls: Controls = {
  'GET /is_paused': ({ simulator }) => ({ is_paused: simulator.engine.isPaused }),
  'GET /weight_info': ({ simulator }) => ({ weight_version: simulator.weightVersion ?? 'default' }),
  async 'POST /pause'({ simulator, query }) {
    await simulator.engine.pause(pauseMode(query.get('mode') ?? 'abort'))
    return { status: 'paused' }
  },
  'POST /resume'({ simulator }) {
    simulator.engine.resume()
    return { status: 'resumed' }
  },
  'POST /abort_requests'({ simulator, body }) {
    const { request_ids: ids } = body
    const names = Array.isArray(ids) && ids.length > 0 ? ids.map(String) : undefined
    return { status: 'aborted', aborted: simulator.engine.abort(names) }
  },
  'POST /update_weight_version': (call) => ({ success: true, new_version: changeVersion(call) }),
  'GET /is_sleeping': ({ simulator }) => ({ is_sleeping: simulator.engine.isAsleep }),
  'POST /sleep'({ simulator }) {
    simulator.engine.sleep()
    return {}
  },
  'POST /wake_up'({ simulator }) {
    simulator.engine.wakeUp()
    return {}
  },
}

const vllmRoutes: Controls = {
  'GET /metrics': engineMetrics({
    kvUsage: 'vllm:kv_cache_usage_perc',
    running: 'vllm:num_requests_running',
    queued: 'vllm:num_requests_waiting',
  }),
  'GET /version': () => ({ version: '0.0.0+simulated' }),
  'POST /tokenize': tokenize,
  ...countMessages,
}

function pauseMode(name: string): PauseMode {
  const mode = pauseModes.find((candidate) => candidate === name)
  if (mode) return mode
  throw invalid(`mode is one of ${pauseModes.join(', ')}, not ${name}`)
}

/** SGLang's names for what happens to replies in the making; a retracted one goes on later, as a frozen one does. */
const sglangPauseModes: ReadonlyMap<string, PauseMode> = new Map([
  ['abort', 'abort'],
  ['in_place', 'keep'],
  ['retract', 'keep'],
])

const modelInfo: Control = ({ simulator, models }) => ({
  model_path: models[0],
  tokenizer_path: simulator.vocabulary.folder ?? models[0],
  is_generation: true,
  preferred_sampling_params: null,
  weight_version: simulator.weightVersion ?? 'default',
})

const serverInfo: Control = ({ simulator, models }) => ({
  model_path: models[0],
  served_model_name: models[0],
  context_length: simulator.shownContextLength ?? null,
  weight_version: simulator.weightVersion ?? 'default',
  version: '0.0.0+simulated',
})

const sglangRoutes: Controls = {
  'GET /metrics': engineMetrics({
    kvUsage: 'sglang:token_usage',
    running: 'sglang:num_running_reqs',
    queued: 'sglang:num_queue_reqs',
  }),
  'GET /get_model_info': modelInfo,
  'GET /model_info': modelInfo,
  'GET /get_server_info': serverInfo,
  'GET /server_info': serverInfo,
  'GET /health_generate': () => ({}),
  'POST /tokenize': tokenize,
  'POST /v1/tokenize': tokenize,
  ...countMessages,
}

const sglangControls: Controls = {
  async 'POST /pause_generation'({ simulator, body }) {
    const { mode = 'abort' } = body
    const meant = typeof mode === 'string' ? sglangPauseModes.get(mode) : undefined
    if (!meant) throw invalid(`mode is one of ${[...sglangPauseModes.keys()].join(', ')}`)
    await simulator.engine.pause(meant)
    return { status: 'ok', message: 'paused' }
  },
  'POST /continue_generation'({ simulator }) {
    simulator.engine.resume()
    return { status: 'ok', message: 'running' }
  },
  'POST /abort_request'({ simulator, body }) {
    const { rid, abort_all: isAll } = body
    if (isAll === true) simulator.engine.abort()
    else if (typeof rid === 'string') simulator.engine.abort([rid])
    else throw invalid('give the rid of a request, or abort_all: true')
    return {}
  },
  'POST /update_weight_version'(call) {
    const version = changeVersion(call)
    // Replies in the making end with the old weights, unless the caller says otherwise.
    if (call.body['abort_all_requests'] !== false) call.simulator.engine.abort()
    return { success: true, message: `the weights are of version ${version}`, new_version: version }
  },
  'POST /update_weights_from_disk'({ simulator, body }) {
    const { model_path: path, weight_version: version, abort_all_requests: isAborting } = body
    if (typeof path !== 'string') throw invalid('model_path is a text: the folder of the new weights')
    if (isAborting === true) simulator.engine.abort()
    if (typeof version === 'string') simulator.change({ weightVersion: version })
    return { success: true, message: 'Succeeded to update model weights.', num_paused_requests: 0 }
  },
}

export const imitations: Readonly<Record<ImitationName, Imitation>> = {
  vllm: {
    apis: new Map([...apisOf('vllm', everyApi), ...idsApis('vllm', ['/v1/completions', '/inference/v1/generate'])]),
    usualApi: apiOf('vllm', 'chat'),
    routes: vllmRoutes,
    controls: vllmControls,
    modelList: openAiModels('vllm', true),
  },
  millrace: {
    apis: new Map([...apisOf('millrace', everyApi), ...idsApis('millrace', ['/v1/completions'])]),
    usualApi: apiOf('millrace', 'chat'),
    routes: vllmRoutes,
    controls: vllmControls,
    modelList: openAiModels('millrace', true),
  },
  sglang: {
    apis: new Map([...apisOf('sglang', everyApi), ['/generate', new GenerateApi()]]),
    usualApi: apiOf('sglang', 'chat'),
    routes: sglangRoutes,
    controls: sglangControls,
    modelList: openAiModels('sglang', true),
  },
  openai: {
    apis: new Map(apisOf('openai', ['chat', 'responses'])),
    usualApi: apiOf('openai', 'chat'),
    routes: countResponses,
    modelList: openAiModels('openai', false),
  },
  anthropic: {
    apis: new Map(apisOf('anthropic', ['messages'])),
    usualApi: apiOf('anthropic', 'messages'),
    requiredHeader: 'anthropic-version',
    routes: countMessages,
    modelList: anthropicModels,
  },
}
