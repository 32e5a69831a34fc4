import { request as send } from 'undici'
import type { ApiName } from '../../../src/schema/index.ts'
import type { SimulatorServer } from '../../../src/simulator/server/server.ts'

export const apiPaths = {
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
} as const

/** One question as each API asks it. */
export function body(api: ApiName, question: string, rest: object = {}): object {
  const messages = [{ role: 'user', content: question }]
  if (api === 'chat') return { model: 'sim', messages, ...rest }
  if (api === 'responses') return { model: 'sim', input: question, ...rest }
  return { model: 'sim', messages, max_tokens: 1000, ...rest }
}

/** What every backend may want to be sent. */
const headers = { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }

export interface Answer {
  readonly status: number
  readonly text: string
}

export async function post(server: SimulatorServer, path: string, sent: object = {}): Promise<Answer> {
  const answer = await send(new URL(path, server.url), { method: 'POST', headers, body: JSON.stringify(sent) })
  return { status: answer.statusCode, text: await answer.body.text() }
}

export async function postForJson(server: SimulatorServer, path: string, sent: object = {}): Promise<unknown> {
  return JSON.parse((await post(server, path, sent)).text)
}

export async function get(server: SimulatorServer, path: string): Promise<unknown> {
  const answer = await send(new URL(path, server.url), { headers })
  return answer.body.json()
}

/** A stream that is read as far as a test wants it. */
export class Stream {
  readonly #chunks: AsyncIterator<Buffer>
  readonly #abort: AbortController
  #text = ''

  private constructor(chunks: AsyncIterator<Buffer>, abort: AbortController) {
    this.#chunks = chunks
    this.#abort = abort
  }

  static async open(server: SimulatorServer, path: string, sent: object, extra: object = {}): Promise<Stream> {
    const abort = new AbortController()
    const answer = await send(new URL(path, server.url), {
      method: 'POST',
      headers: { ...headers, ...extra },
      body: JSON.stringify({ ...sent, stream: true }),
      signal: abort.signal,
    })
    return new Stream(answer.body[Symbol.asyncIterator](), abort)
  }

  get events(): unknown[] {
    return eventsOf(this.#text)
  }

  /** Reads on until `isEnough`, or to the end. */
  async until(isEnough: (events: unknown[]) => boolean): Promise<unknown[]> {
    while (!isEnough(this.events)) {
      const { value, done } = await this.#chunks.next()
      if (done === true) break
      this.#text += value.toString()
    }
    return this.events
  }

  /** How it ended, and everything it said. */
  async rest(): Promise<{ end: 'end' | 'broken'; events: unknown[]; text: string }> {
    let end: 'end' | 'broken' = 'end'
    await this.until(() => false).catch(() => {
      end = 'broken'
    })
    return { end, events: this.events, text: this.#text }
  }

  abort(): void {
    this.#abort.abort()
  }
}

/** The events of a stream that are JSON. */
export function eventsOf(text: string): unknown[] {
  const events: unknown[] = []
  for (const [, data = ''] of text.matchAll(/^data: (.*)$/gm)) {
    try {
      if (data !== '[DONE]') events.push(JSON.parse(data))
    } catch {
      // Garbled, or not all there yet.
    }
  }
  return events
}

/** What all events together say, whichever API they are of. */
export function saidIn(events: readonly unknown[]): string {
  let text = ''
  for (const event of events) {
    const { choices, delta, type } = event as {
      choices?: { delta?: { content?: string | null } }[]
      delta?: string | { text?: string }
      type?: string
    }
    if (typeof delta === 'object') text += delta.text ?? ''
    else if (type === 'response.output_text.delta') text += delta ?? ''
    text += choices?.[0]?.delta?.content ?? ''
  }
  return text
}
