/**
 * Codes and phrases with which servers say that a conversation no longer fits. Gathered from OpenAI, vLLM, SGLang,
 * Anthropic, Gemini, llama.cpp, TGI, Groq, Bedrock, LM Studio, Ollama, Moonshot, Z.ai and DashScope; each line is one of them
 * and has a test.
 */
const codes = new Set(['context_length_exceeded', 'exceed_context_size_error', 'string_above_max_length'])

const phrases = [
  'maximum context length',
  'maximum model length',
  'maximum prompt length',
  'maximum number of tokens allowed',
  'context window',
  "model's context length",
  'available context size',
  'tokens) exceeds the maximum allowed length',
  'exceeds the context length',
  'greater than the context length',
  'exceeded model token limit',
  'prompt exceeds max length',
  'range of input length should be',
  'exceed context limit',
  'prompt is too long',
  'input is too long',
  'reduce the length of the messages',
  '`inputs` tokens + `max_new_tokens` must be',
]

export function saysContextLength(code: string, message: string): boolean {
  if (codes.has(code)) return true
  const lower = message.toLowerCase()
  return phrases.some((phrase) => lower.includes(phrase))
}
