import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { ask } from '../../../test/support/inference/open-backend.ts'
import type { ToolDefinition, JsonObject } from '../../schema/index.ts'
import { apiPaths, body, postForJson } from '../../../test/support/simulator/ask.ts'
import { SimulatorServer } from '../server/server.ts'
import { Simulator } from './simulator.ts'

const messages = [{ role: 'user', content: 'Who wrote Hamlet, and when?' }] as const

const answer = async (simulator: Simulator, schema: object, seed = 0): Promise<string> => {
  const responseFormat = { kind: 'json_schema', name: 'it', schema: schema as JsonObject } as const
  return (await simulator.send(ask({ messages, sampling: { seed }, responseFormat }))).message.content ?? ''
}

const person = z.object({ name: z.string().min(3).max(8), born: z.int().min(1500).max(1600), alive: z.boolean() })
interface Tree {
  label: string
  children: Tree[]
}
const tree: z.ZodType<Tree> = z.lazy(() => z.object({ label: z.string(), children: z.array(tree) }))
interface Link {
  value: number
  next: Link | null
}
const link: z.ZodType<Link> = z.lazy(() => z.object({ value: z.number(), next: z.union([link, z.null()]) }))

describe('an answer with a response format', () => {
  test.each([
    ['an object', person],
    ['a list with a least length', z.array(person).min(2)],
    ['a choice of words and constants', z.object({ kind: z.literal('it'), word: z.enum(['a', 'b', 'c']) })],
    ['a union', z.object({ either: z.union([z.number(), z.string()]), or: z.null() })],
    ['a tuple', z.tuple([z.string(), z.number()])],
    [
      'numbers between bounds',
      z.object({ p: z.number().gt(0).lt(1), odd: z.int().multipleOf(7).min(10), low: z.number().lt(-3) }),
    ],
    ['texts of a format', z.object({ mail: z.email(), at: z.iso.datetime(), id: z.uuid(), link: z.url() })],
    ['a tree', tree],
    ['a chain', link],
    ['a plain text', z.string().min(40)],
  ])('%s fits it, and is the same for the same seed', async (_, schema) => {
    await using simulator = new Simulator()
    const jsonSchema = z.toJSONSchema(schema)
    for (let seed = 0; seed < 20; seed += 1) {
      const text = await answer(simulator, jsonSchema, seed)
      expect(schema.safeParse(JSON.parse(text)).error).toBeUndefined()
      expect(await answer(simulator, jsonSchema, seed)).toBe(text)
    }
  })

  test('is the smallest: required fields and empty lists', async () => {
    await using simulator = new Simulator()
    const schema = {
      type: 'object',
      properties: { needed: { type: 'array', items: { type: 'string' } }, other: { type: 'string' } },
      required: ['needed'],
    }
    expect(await answer(simulator, schema)).toBe('{"needed":[]}')
  })

  test('with an endless schema fails', async () => {
    await using simulator = new Simulator()
    const fields = Object.fromEntries(Array.from({ length: 20 }, (_unused, index) => [`f${index}`, { $ref: '#' }]))
    const text = await answer(simulator, { type: 'object', properties: fields, required: Object.keys(fields) })
    expect(text.length).toBeLessThan(100_000)
  })

  test('of kind json_object holds the answer in an object', async () => {
    await using simulator = new Simulator()
    const question = [{ role: 'user', content: 'What is 1 + 2?' }] as const
    const { message } = await simulator.send(ask({ messages: question, responseFormat: { kind: 'json_object' } }))
    expect(JSON.parse(message.content ?? '')).toEqual({ answer: 'The answer is 3.' })
  })

  test('is returned by every API', async () => {
    await using server = await SimulatorServer.start()
    const schema = { type: 'object', properties: { n: { const: 4 } }, required: ['n'], additionalProperties: false }
    const forms = {
      chat: { response_format: { type: 'json_schema', json_schema: { name: 'it', schema, strict: true } } },
      responses: { text: { format: { type: 'json_schema', name: 'it', schema, strict: true } } },
      messages: { output_config: { format: { type: 'json_schema', schema } } },
    }
    for (const api of ['chat', 'responses', 'messages'] as const) {
      const reply = await postForJson(server, apiPaths[api], body(api, 'How many?', forms[api]))
      expect(JSON.stringify(reply)).toContain(JSON.stringify('{"n":4}'))
    }
  })
})

describe('tool calls', () => {
  const delegate: ToolDefinition = {
    type: 'function',
    function: {
      name: 'delegate',
      parameters: { type: 'object', properties: { task: { type: 'string' } }, required: ['task'] },
    },
  }
  const sums = [{ role: 'user', content: 'Add up the results of:\n- 1 + 2\n- 3 + 4\n- 5 + 6' }] as const

  test('are parallel unless this is disabled', async () => {
    await using simulator = new Simulator()
    const count = async (parallelToolCalls?: boolean) => {
      const rest = parallelToolCalls === undefined ? {} : { parallelToolCalls }
      const { message } = await simulator.send(ask({ messages: sums, tools: [delegate], ...rest }))
      return message.tool_calls?.length
    }
    expect([await count(), await count(true), await count(false)]).toEqual([3, 3, 1])
  })

  test('that are required are made in spite of a response format', async () => {
    await using simulator = new Simulator()
    const responseFormat = { kind: 'json_object' } as const
    for (const toolChoice of ['required', { name: 'delegate' }] as const) {
      const { message } = await simulator.send(ask({ messages, tools: [delegate], toolChoice, responseFormat }))
      expect(message.tool_calls?.map((call) => call.function.name)).toEqual(['delegate'])
    }
  })
})
