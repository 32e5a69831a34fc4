import { expect, test } from 'vitest'
import { messagesServer } from './messages/write-reply.ts'
import { isJsonObject } from '../schema/index.ts'
import { parseBody } from './request-fields.ts'

const exact = '{"id":9007199254740993,"far":1e400,"zero":-0,"pi":3.14159265358979323846}'

function body(input: string): string {
  const call = `{"type":"tool_use","id":"c","name":"f","input":${input}}`
  return `{"model":"m","max_tokens":5,"temperature":0.70000000000000000001,"messages":[{"role":"assistant","content":[${call}]}]}`
}

test('numbers in tool arguments from a Messages client stay exact, and other fields are numbers', () => {
  const parsed = parseBody('messages', body(exact))
  if (!isJsonObject(parsed)) throw new Error('no object')
  const { messages, sampling } = messagesServer.read(parsed)
  expect(messages).toMatchObject([{ tool_calls: [{ function: { arguments: exact } }] }])
  expect(sampling).toMatchObject({ maxTokens: 5, temperature: 0.7 })
})

test('all other bodies are parsed as by JSON.parse', () => {
  expect(parseBody('messages', body('{"a":1.0}'))).toEqual(JSON.parse(body('{"a":1}')))
  expect(parseBody('chat', body(exact))).toEqual(JSON.parse(body(exact)))
  for (const text of ['[]', 'null', '{"messages":3}', '{"messages":[null,{"content":[1]}]}']) {
    expect(parseBody('messages', text)).toEqual(JSON.parse(text))
  }
  expect(() => parseBody('messages', '{')).toThrow(SyntaxError)
})
