import { expect, test } from 'vitest'
import type { JsonObject } from '../../schema/index.ts'
import { upstreamBody } from './_upstream-body.ts'

const tricky = String.raw`say \"model\": \"m\" {"logprobs":`.replaceAll('{"logprobs":', String.raw`{\"logprobs\":`)

const bodies: [string, string][] = [
  ['a plain one', '{"model":"m","messages":[]}'],
  ['spaces', ' \n{ "model" : "m" , "messages" : [ ] }'],
  ['text that looks like fields', `{"messages":[{"role":"user","content":"${tricky}"}],"model":"m"}`],
  ['a field of the same name further in', '{"metadata":{"model":"x"},"model":"m"}'],
  ['a field of the same name further in, after it', '{"model":"m","metadata":{"model":"x"}}'],
  ['a name with escapes', String.raw`{"mod\u0065l":"m","messages":[]}`],
  ['a name with escapes beside one further in', String.raw`{"mod\u0065l":"m","metadata":{"model":"m"}}`],
  ['a value with escapes', String.raw`{"model":"a\/b","messages":[]}`],
  ['a text that is the name', '{"user":"model","model":"m"}'],
  ['a contradiction', '{"model":"m","logprobs":false,"stream_options":{"include_obfuscation":false}}'],
  ['the same twice', '{"model":"x","logprobs":false,"model":"m"}'],
  ['nothing but contradictions', '{"model":"m","logprobs":false,"stream_options":null}'],
  ['nothing', '{}'],
  ['nothing to add', '{"model":"m","logprobs":true,"stream_options":{"include_usage":true}}'],
]

function sentFor(text: string, fields: JsonObject): string {
  const members = JSON.parse(text) as JsonObject
  return upstreamBody({ bytes: Buffer.from(text), members }, fields).toString()
}

test.each(bodies)('%s: the backend gets the same body with our fields', (_, text) => {
  const body = JSON.parse(text) as JsonObject
  const fields = { model: 'served "name"', logprobs: true, stream_options: { include_usage: true } }
  const sent = sentFor(text, fields)
  expect(JSON.parse(sent)).toEqual({ ...body, ...fields })
  // Some servers take the first of two fields of one name, others the last.
  expect(JSON.stringify(JSON.parse(sent)).length).toBeLessThanOrEqual(sent.length)
  expect(sent.split('"logprobs":').length).toBe(2)
})

test('what contradicts us is left out, and all else stays as it was written', () => {
  const tools = '[ {"parameters":{"default":1.0,"model":9223372036854775807}} ]'
  expect(
    sentFor(`{"model":"m", "logprobs":false, "tools":${tools},"seed":1e400}`, { model: 'n', logprobs: true }),
  ).toBe(`{"tools":${tools},"seed":1e400,"model":"n","logprobs":true}`)
  expect(sentFor('{"model":"m","text":"1.0"}', { model: undefined })).toBe('{"text":"1.0"}')
})

test('messages that were read before are sent all the same', () => {
  const text =
    '{"model":"m","logprobs":false,"messages":[{"role":"user","content":"one"},{"role":"user","content":"two"}]}'
  const whole = JSON.parse(text) as JsonObject
  const members = { ...whole, messages: [] }
  const bytes = Buffer.from(text)
  for (const fields of [{ logprobs: true }, { model: 'n' }, { model: 'm', seed: 1 }]) {
    const sent = upstreamBody({ bytes, members }, fields).toString()
    expect(JSON.parse(sent)).toEqual({ ...whole, ...fields })
  }
})

test('a long conversation is not written anew', () => {
  const text = `{"model":"m",  "messages":[{"role":"user","content":"${'x'.repeat(1000)}"}]}`
  const sent = sentFor(text, { model: 'n', logprobs: true })
  expect(sent).toBe(text.replace('{"model":"m"', '{"logprobs":true,"model":"n"'))
  expect(sentFor(text, { model: 'm' })).toBe(text)
})
