import { chatServer } from '../dialects/index.ts'
import { changeVersion, invalid, type ControlCall, type Controls } from './_control.ts'
import { pauseModes, type PauseMode } from './_engine.ts'
import { textOfTools } from './_digest.ts'
import { promptIds } from './_token-record.ts'
import { textIds } from './_token-stream.ts'

/** What vLLM serves beside the model: version, tokens, and the switches that weight updates need. */
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
}

function pauseMode(name: string): PauseMode {
  const mode = pauseModes.find((candidate) => candidate === name)
  if (mode) return mode
  throw invalid(`mode is one of ${pauseModes.join(', ')}, not ${name}`)
}

/** Of a prompt, or of a conversation as the chat template writes it. */
function tokenize({ simulator, body }: ControlCall): object {
  const tokens = Array.from(idsOf(body))
  const { contextLength } = simulator.settings
  return { count: tokens.length, tokens, ...(contextLength > 0 && { max_model_len: contextLength }) }
}

function idsOf(body: ControlCall['body']): Int32Array {
  if (typeof body['prompt'] === 'string') return textIds(body['prompt'])
  const { messages, tools } = chatServer.read({ model: 'any', ...body })
  return promptIds(messages, textOfTools(tools))
}
