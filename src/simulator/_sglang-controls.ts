import { changeVersion, invalid, type Control, type Controls } from './_control.ts'
import { countMessages, tokenize } from './_count-controls.ts'
import type { PauseMode } from './_simulated-engine.ts'

/** SGLang's names for what happens to replies in the making; a retracted one goes on later, as a frozen one does. */
const pauseModes: ReadonlyMap<string, PauseMode> = new Map([
  ['abort', 'abort'],
  ['in_place', 'keep'],
  ['retract', 'keep'],
])

const modelInfo: Control = ({ simulator, models }) => ({
  model_path: models[0],
  tokenizer_path: models[0],
  is_generation: true,
  preferred_sampling_params: null,
  weight_version: simulator.weightVersion ?? 'default',
})

const serverInfo: Control = ({ simulator, models }) => {
  const { contextLength } = simulator.settings
  return {
    model_path: models[0],
    served_model_name: models[0],
    context_length: contextLength > 0 ? contextLength : null,
    weight_version: simulator.weightVersion ?? 'default',
    version: '0.0.0+simulated',
  }
}

/** SGLang's endpoints beside the model's own, under their older and newer names. */
export const sglangControls: Controls = {
  'GET /get_model_info': modelInfo,
  'GET /model_info': modelInfo,
  'GET /get_server_info': serverInfo,
  'GET /server_info': serverInfo,
  'GET /health_generate': () => ({}),
  'POST /tokenize': tokenize,
  'POST /v1/tokenize': tokenize,
  ...countMessages,
  async 'POST /pause_generation'({ simulator, body }) {
    const { mode = 'abort' } = body
    const meant = typeof mode === 'string' ? pauseModes.get(mode) : undefined
    if (!meant) throw invalid(`mode is one of ${[...pauseModes.keys()].join(', ')}`)
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
}
