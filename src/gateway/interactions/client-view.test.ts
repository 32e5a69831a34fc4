import { expect, test } from 'vitest'
import { chatServer } from '../../dialects/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import { asksForTokens, ChatView } from './_client-view.ts'

function requestWith(fields: JsonObject = {}): ReturnType<typeof chatServer.read> {
  return chatServer.read({ model: 'm', messages: [{ role: 'user', content: 'x' }], stream: true, ...fields })
}

const seenBy = (document: object, fields?: JsonObject) => new ChatView(requestWith(fields)).of(document)

const vllm = { index: 0, delta: { content: 'a' }, token_ids: [1], logprobs: { content: [] }, routed_experts: 'x' }
const chunk = { id: 'chatcmpl-1', choices: [vllm], usage: null, prompt_token_ids: [1, 2], system_fingerprint: 'f' }
const sglang = { index: 0, message: {}, logprobs: null, prompt_token_ids: [1], meta_info: { id: 'r' }, sgl_ext: {} }
const reply = {
  id: 'r',
  choices: [sglang],
  usage: {},
  metadata: { weight_version: '1' },
  sglext: { routed_experts: '' },
}

test('what only the record needs is taken out of what a client sees', () => {
  expect(seenBy(chunk)).toEqual({
    id: 'chatcmpl-1',
    choices: [{ index: 0, delta: { content: 'a' }, logprobs: null }],
    system_fingerprint: 'f',
  })
  expect(seenBy(reply, { stream: false })).toEqual({
    id: 'r',
    choices: [{ index: 0, message: {}, logprobs: null }],
    usage: {},
    metadata: { weight_version: '1' },
  })
  expect(asksForTokens(requestWith())).toBe(false)
})

test('what the client asked for stays, in the words of each engine', () => {
  const usage = { stream_options: { include_usage: true } }
  expect(seenBy(chunk, { ...usage, logprobs: true, return_token_ids: true })).toEqual(chunk)
  const { sgl_ext: _left, ...kept } = sglang
  const asked = { stream: false, return_prompt_token_ids: true, return_meta_info: true }
  expect(seenBy(reply, asked)).toMatchObject({ choices: [kept] })
  expect(seenBy(reply, { stream: false, return_routed_experts: true })).toHaveProperty('sglext')
  for (const flag of ['logprobs', 'return_token_ids', 'return_meta_info', 'return_routed_experts']) {
    expect(asksForTokens(requestWith({ [flag]: true }))).toBe(true)
  }
})

test('a reply in which nothing is hidden is itself, so that its client gets it as it was written', () => {
  const plain = { id: 'r', choices: [{ index: 0, message: {}, logprobs: null }], usage: {} }
  expect(seenBy(plain, { stream: false })).toBe(plain)
  expect(seenBy(reply, { stream: false })).not.toBe(reply)
  expect(seenBy({ ...plain, sglext: {} }, { stream: false })).toEqual(plain)
})

test('a chunk that only says the usage is not for a client that did not ask', () => {
  const last = { id: 'chatcmpl-1', choices: [], usage: { prompt_tokens: 1 } }
  expect(seenBy(last)).toBeUndefined()
  expect(seenBy(last, { stream_options: { include_usage: true } })).toEqual(last)
  // Not every chunk without choices is that one.
  expect(seenBy({ id: 'x', choices: [] })).toEqual({ id: 'x', choices: [] })
})
