import { expect, test } from 'vitest'
import { chatReply, ScriptedServer, sendJson } from '../../inference/_testing/scripted-server.ts'
import { OpenGateway } from '../_testing/open-gateway.ts'
import { exportSessions, type ExportSessionsOptions } from './export-sessions.ts'
import type { Row } from './_rows-parts.ts'

/** A gateway before a server of Chat that answers with tokens: one for each character of the prompt, and those of its reply. */
async function openGateway(): Promise<{ readonly open: OpenGateway } & AsyncDisposable> {
  await using ends = new AsyncDisposableStack()
  const server = ends.use(
    await ScriptedServer.start((response, { body, path }) => {
      if (path === '/generate') return sendJson(response, generated)
      const { messages } = JSON.parse(body) as { messages: { role: string; content: string }[] }
      const prompt = messages.map(({ role, content }) => `<${role}>${content}`).join('')
      const reply = `reply ${messages.length}`
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
    { name: 'n', backends: [backend] },
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

async function rowsOf(open: OpenGateway, options: Partial<ExportSessionsOptions> = {}): Promise<Row[]> {
  await open.store.journal.durable()
  const chunks = await Array.fromAsync(
    exportSessions(open.store.reader, { rows: 'interactions', format: 'jsonl', ...options }),
  )
  const lines = Buffer.concat(chunks).toString().trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as Row)
}

test('rows say how each reply was sampled, whatever API it was asked in', async () => {
  await using gateway = await openGateway()
  const { open } = gateway
  const { caller } = await open.session()
  const said = [{ role: 'user', content: 'hi' }]
  const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }]
  const chat = { model: 'm', messages: said, tools, tool_choice: 'required', temperature: 0.5, top_k: 20, seed: 1 }
  expect((await open.ask(caller, chat)).status).toBe(200)
  const messages = { model: 'm', messages: [{ role: 'user', content: 'ho' }], max_tokens: 9, top_p: 0.9 }
  expect((await open.ask(caller, messages, { api: 'messages' })).status).toBe(200)
  const responses = { model: 'n', input: 'hu', text: { format: { type: 'json_object' } } }
  expect((await open.ask(caller, responses, { api: 'responses' })).status).toBe(200)
  const generate = { model: 'n', input_ids: [1, 2], sampling_params: { temperature: 1, min_p: 0.1, regex: '[0-9]' } }
  const { status, text } = await open.ask(caller, generate, { api: 'generate' })
  expect(status, text).toBe(200)
  const expected = [
    { temperature: 0.5, topK: 20, seed: 1, toolChoice: 'required', constrainedBy: ['tool_choice'], logprobs: 'raw' },
    { topP: 0.9, logprobs: 'raw' },
    { constrainedBy: ['response_format'], logprobs: 'processed' },
    { temperature: 1, minP: 0.1, constrainedBy: ['regex'], logprobs: 'processed' },
  ]
  const rows = await rowsOf(open)
  expect(rows.flatMap((row) => (row.kind === 'interaction' ? [row.sampling] : []))).toEqual(expected)
  const merged = await rowsOf(open, { rows: 'merged' })
  const samples = merged.flatMap((row) => (row.kind === 'merged' ? row.samples : []))
  expect(samples.map(({ sampling }) => sampling)).toEqual(expected)
})
