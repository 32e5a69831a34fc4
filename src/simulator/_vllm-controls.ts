import { changeVersion, invalid, type Controls } from './_control.ts'
import { countMessages, tokenize } from './_count-controls.ts'
import { pauseModes, type PauseMode } from './_simulated-engine.ts'

/** vLLM's endpoints beside the model's own: version, tokens, and the switches that weight updates need. */
export const vllmControls: Controls = {
  'GET /version': () => ({ version: '0.0.0+simulated' }),
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
  'POST /tokenize': tokenize,
  ...countMessages,
}

function pauseMode(name: string): PauseMode {
  const mode = pauseModes.find((candidate) => candidate === name)
  if (mode) return mode
  throw invalid(`mode is one of ${pauseModes.join(', ')}, not ${name}`)
}
