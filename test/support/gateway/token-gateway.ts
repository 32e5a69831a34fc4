import { readBinaryRows, readJsonRows } from './read-rows.ts'
import { exportRows, type ExportRowsOptions } from '../../../src/rows/index.ts'
import type { Row } from '../../../src/rows/index.ts'
import { chatReply, ScriptedServer, sendJson } from '../../../test/support/inference/scripted-server.ts'
import { OpenGateway } from './open-gateway.ts'

export interface Said {
  readonly role: string
  readonly content: string
}

/**
 * A gateway before a server of Chat that answers with tokens: one for each character of the prompt, and those of its reply. The
 * model `drifting` writes anew what it said before, and `plain` has no tokens.
 */
export async function openTokenGateway(): Promise<{ readonly open: OpenGateway } & AsyncDisposable> {
  await using ends = new AsyncDisposableStack()
  const server = ends.use(
    await ScriptedServer.start((response, { body, path }) => {
      if (path === '/generate') return sendJson(response, generated)
      const { model, messages } = JSON.parse(body) as { model: string; messages: Said[] }
      const reply = `reply ${messages.length}`
      if (model === 'plain') return sendJson(response, chatReply(reply))
      const written = ({ role, content }: Said): string =>
        `<${role}>${model === 'drifting' && role === 'assistant' ? content.toUpperCase() : content}`
      const prompt = messages.map(written).join('')
      const ids = idsOf(`<assistant>${reply}`)
      const content = ids.map((id) => ({ token: String.fromCodePoint(id), logprob: -1, bytes: null }))
      const choice = { index: 0, message: { role: 'assistant', content: reply }, finish_reason: 'stop' }
      const usage = { prompt_tokens: prompt.length, completion_tokens: ids.length, total_tokens: 0 }
      const choices = [{ ...choice, token_ids: ids, logprobs: { content } }]
      sendJson(response, chatReply('', { choices, usage, prompt_token_ids: idsOf(prompt) }))
    }),
  )
  const backend = { url: server.url, engine: 'sglang' as const }
  const models = [
    { name: 'm', backends: [{ ...backend, logprobs: 'raw' as const }] },
    ...['n', 'drifting', 'plain'].map((name) => ({ name, backends: [backend] })),
  ]
  const open = ends.use(await OpenGateway.open({ models }))
  const moved = ends.move()
  return { open, [Symbol.asyncDispose]: () => moved.disposeAsync() }
}

const generated = {
  text: 'ok',
  output_ids: [5],
  meta_info: {
    id: 'g1',
    finish_reason: { type: 'stop' },
    prompt_tokens: 2,
    completion_tokens: 1,
    output_token_logprobs: [[-1, 5, null]],
  },
}

function idsOf(text: string): number[] {
  return Array.from(text, (character) => character.codePointAt(0) ?? 0)
}

export async function rowsOf(open: OpenGateway, options: Partial<ExportRowsOptions> = {}): Promise<Row[]> {
  await open.store.journal.durable()
  const format = options.format ?? 'jsonl'
  const chunks = exportRows(open.store.reader, { rows: 'interactions', ...options, format })
  const bytes = Buffer.concat(await Array.fromAsync(chunks))
  return (format === 'binary' ? readBinaryRows(bytes) : readJsonRows(bytes)) as unknown as Row[]
}
