import type { FinishReason } from '../../schema/index.ts'

/** All finish reasons that servers are known to send, in our four words. `cut`: the server itself stopped the generation. */
const meanings: Readonly<Record<string, FinishReason | 'cut'>> = {
  stop: 'stop',
  eos: 'stop',
  end_turn: 'stop',
  stop_sequence: 'stop',
  length: 'length',
  max_tokens: 'length',
  max_output_tokens: 'length',
  model_length: 'length',
  model_context_window_exceeded: 'length',
  // vLLM's reason if it detects repetition: the engine ended the reply, the model would have gone on.
  repetition: 'length',
  tool_calls: 'tool_calls',
  tool_use: 'tool_calls',
  function_call: 'tool_calls',
  content_filter: 'content_filter',
  safety: 'content_filter',
  sensitive: 'content_filter',
  refusal: 'content_filter',
  abort: 'cut',
  cancelled: 'cut',
  error: 'cut',
  // DeepSeek's reason if it has no machine left for the request.
  insufficient_system_resource: 'cut',
  // Z.ai's.
  network_error: 'cut',
}

/**
 * The meaning of a server's finish reason, in upper or lower case. An unknown reason still means that the server ended the
 * reply. A reply with tool calls that "stopped" ended for them: several servers say `stop` when the tool choice was forced.
 */
export function finishReasonOf(said: string, hasToolCalls: boolean): FinishReason | 'cut' {
  const word = said.toLowerCase()
  const meaning = Object.hasOwn(meanings, word) ? (meanings[word] ?? 'stop') : 'stop'
  return meaning === 'stop' && hasToolCalls ? 'tool_calls' : meaning
}
