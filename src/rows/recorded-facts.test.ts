import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openTokenGateway, rowsOf } from '../../test/support/gateway/token-gateway.ts'

test('rows give the sampling of each reply, whatever API was used', async () => {
  await using gateway = await openTokenGateway()
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

test('docs/export.md names every field of the rows', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { caller } = await open.session()
  expect((await open.ask(caller, { model: 'm', messages: [{ role: 'user', content: 'hi' }] })).status).toBe(200)
  const page = readFileSync(join(import.meta.dirname, '../../docs/export.md'), 'utf8')
  // A field is named in a table, or in a sentence about the fields of all rows.
  const lines = page.match(/^(\||All rows but|Every row has).*\n.*$/gm)?.join() ?? ''
  const named = new Set(Array.from(lines.matchAll(/`(\w+)/g), ([, name]) => name))
  for (const rows of ['interactions', 'merged'] as const) {
    const [row] = await rowsOf(open, { rows })
    const fields = row?.kind === 'merged' ? [row, ...row.samples] : [row ?? {}]
    expect(fields.flatMap((each) => Object.keys(each)).filter((name) => !named.has(name))).toEqual([])
  }
})
