import type { ServerResponse } from 'node:http'

export interface ChunkOptions {
  readonly id?: string
  readonly finish?: string | null
  readonly token?: number
  readonly promptIds?: readonly number[]
}

/** One chunk of a Chat Completions stream, as vLLM writes it when it is asked for tokens. */
export function tokenChunk(content: string, options: ChunkOptions = {}): string {
  const { id = 'chatcmpl-1', finish = null, token, promptIds } = options
  const hasToken = token !== undefined
  return eventOf({
    id,
    object: 'chat.completion.chunk',
    model: 'served',
    ...(promptIds && { prompt_token_ids: promptIds }),
    choices: [
      {
        index: 0,
        delta: { content },
        finish_reason: finish,
        logprobs: hasToken ? { content: [{ token: content, logprob: -token / 100, bytes: null }] } : null,
        ...(hasToken && { token_ids: [token] }),
      },
    ],
  })
}

export function usageChunk(input: number, output: number, id = 'chatcmpl-1'): string {
  const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
  return eventOf({ id, object: 'chat.completion.chunk', model: 'served', choices: [], usage })
}

export const doneEvent = 'data: [DONE]\n\n'

export function beginEvents(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
}

function eventOf(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`
}
