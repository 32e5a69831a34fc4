import { expect, test } from 'vitest'
import type { JsonObject } from '../schema/index.ts'
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
  ['nothing to add', '{"model":"m","logprobs":true,"stream_options":{"include_usage":true}}'],
]

function sentFor(text: string, fields: JsonObject): string {
  return upstreamBody({ api: 'chat', body: Buffer.from(text) }, JSON.parse(text) as JsonObject, fields).toString()
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

test('a long conversation is not written anew', () => {
  const text = `{"model":"m",  "messages":[{"role":"user","content":"${'x'.repeat(1000)}"}]}`
  const sent = sentFor(text, { model: 'n', logprobs: true })
  expect(sent).toBe(text.replace('{"model":"m"', '{"logprobs":true,"model":"n"'))
  expect(sentFor(text, { model: 'm' })).toBe(text)
})
