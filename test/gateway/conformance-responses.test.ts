import { NotFoundError } from 'openai'
import { ResponsesToolRunner, runnerFunction } from 'openai/helpers/responses-tool-runner'
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod'
import { toResponseInputItems } from 'openai/lib/responses/ResponseInputItems'
import type { Response, ResponseInput, ResponseStreamEvent } from 'openai/resources/responses/responses'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { modelName as model, oneBranch, sharedGateway } from '../support/gateway/gateway-over-simulator.ts'
import {
  answer,
  calculate,
  calculator,
  calculatorParameters,
  delegate,
  delegated,
  delegateParameters,
  image,
  listAnswer,
  listQuestion,
  question,
  runTool,
} from '../support/gateway/calculator-tools.ts'

const calculatorTool = zodResponsesFunction({
  name: calculator.name,
  parameters: calculatorParameters,
  function: calculate,
})
const delegateTool = zodResponsesFunction({ name: delegate.name, parameters: delegateParameters, function: delegated })

describe.for(['responses', 'chat', 'messages'] as const)(
  'the openai client, responses, over a backend of %s',
  (api) => {
    const gateway = sharedGateway({ api, simulator: { reasoning: true } })

    test.for(['key', 'url'] as const)('create, with the session named by %s', async (way) => {
      const session = await gateway().startSession()
      const response = await session.openai(way).responses.create({
        model,
        instructions: 'Be brief.',
        input: question,
        temperature: 0.5,
        max_output_tokens: 200,
        metadata: { purpose: 'test' },
      })
      expect(response.output_text).toContain(answer)
      expect(response.output.map(({ type }) => type)).toEqual(['reasoning', 'message'])
      expect(response).toMatchObject({
        object: 'response',
        model,
        status: 'completed',
        error: null,
        incomplete_details: null,
        instructions: 'Be brief.',
        max_output_tokens: 200,
        metadata: { purpose: 'test' },
      })
      expect(response.usage?.total_tokens).toBeGreaterThan(0)
      expect(await oneBranch(session)).toEqual(['system', 'user', 'assistant'])
      expect((await session.nodes()).at(-1)?.call).toMatchObject({ api: 'responses', replyId: response.id })
    })

    test('create as a stream, with complete and ordered events', async () => {
      const session = await gateway().startSession()
      const stream = await session.openai().responses.create({ model, input: question, stream: true })
      const events: ResponseStreamEvent[] = []
      for await (const event of stream) events.push(event)
      expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_event, index) => index))
      const types = events.map(({ type }) => type)
      expect(types.slice(0, 2)).toEqual(['response.created', 'response.in_progress'])
      expect(types.at(-1)).toBe('response.completed')
      const text = events.map((event) => (event.type === 'response.output_text.delta' ? event.delta : '')).join('')
      expect(text).toContain(answer)
      const last = events.at(-1)
      expect(last?.type === 'response.completed' && textIn(last.response)).toBe(text)
    })

    test('stream() with its final response', async () => {
      const session = await gateway().startSession()
      const stream = session.openai('url').responses.stream({ model, input: question })
      let text = ''
      stream.on('response.output_text.delta', ({ delta }) => (text += delta))
      const final = await stream.finalResponse()
      expect(final).toMatchObject({ status: 'completed', output_text: text })
      expect(text).toContain(answer)
      expect(final.usage?.output_tokens).toBe((await session.nodes()).at(-1)?.call?.usage.output)
    })

    test.for([
      [question, answer, ['user', 'assistant', 'tool', 'assistant']],
      [listQuestion, listAnswer, ['user', 'assistant', 'tool', 'tool', 'tool', 'assistant']],
    ] as const)("the client's own tool runner: %s", async ([input, expected, roles]) => {
      for (const stream of [false, true]) {
        const session = await gateway().startSession()
        const functions = [runnerFunction(calculatorTool), runnerFunction(delegateTool)]
        const runner = new ResponsesToolRunner({ functions })
        const response = await runner.run(session.openai(), { model, input }, { stream })
        expect(textIn(response)).toContain(expected)
        expect(await oneBranch(session)).toEqual(roles)
      }
    })

    test('single calls with parallel_tool_calls: false, and tool_choice', async () => {
      const session = await gateway().startSession()
      const { responses } = session.openai()
      const tools = [calculatorTool, delegateTool]
      const one = await responses.parse({ model, input: listQuestion, tools, parallel_tool_calls: false })
      expect(callsIn(one)).toEqual([delegate.name])
      const none = await responses.parse({ model, input: question, tools, tool_choice: 'none' })
      expect(none.output_text).toContain(answer)
      const required = await responses.parse({ model, input: 'Hello!', tools, tool_choice: 'required' })
      expect(callsIn(required)).toHaveLength(1)
      const tool_choice = { type: 'function', name: delegate.name } as const
      const named = await responses.parse({ model, input: 'Hello!', tools, tool_choice })
      expect(callsIn(named)).toEqual([delegate.name])
    })

    test('parsed structured output', async () => {
      const session = await gateway().startSession()
      const { responses } = session.openai()
      const person = z.object({ name: z.string(), age: z.int().min(18).max(99), tags: z.array(z.string()) })
      const text = { format: zodTextFormat(person, 'person') }
      const whole = await responses.parse({ model, input: question, text })
      const final = await responses.stream({ model, input: question, text }).finalResponse()
      expect(whole.output_parsed).not.toBeNull()
      expect(person.parse(whole.output_parsed)).toEqual(whole.output_parsed)
      expect(final.output_parsed).toEqual(whole.output_parsed)
    })

    test('images', async () => {
      const session = await gateway().startSession()
      const response = await session.openai().responses.create({
        model,
        input: [
          {
            role: 'user',
            content: [
              { type: 'input_image', image_url: image.dataUrl, detail: 'low' },
              { type: 'input_text', text: question },
            ],
          },
        ],
      })
      expect(response.output_text).toContain(answer)
      expect((await session.nodes())[0]?.message.content).toMatchObject([
        { type: 'image_url', image_url: { url: image.dataUrl } },
        { type: 'text', text: question },
      ])
    })

    test('a conversation that the client resends is one branch', async () => {
      const session = await gateway().startSession()
      const { responses } = session.openai()
      const tools = [calculatorTool, delegateTool]
      const input: ResponseInput = []
      for (const [index, content] of [question, listQuestion, 'What is 5 + 6?'].entries()) {
        input.push({ role: 'user', content })
        for (let turn = 0; turn < 2; turn += 1) {
          const request = { model, input, tools, store: false }
          // Streamed or not, the next request has the same history.
          const response = await (index === 1 ? responses.stream(request).finalResponse() : responses.parse(request))
          input.push(...toResponseInputItems(response.output), ...toolResults(response))
        }
      }
      const tools3 = ['assistant', 'tool', 'tool', 'tool', 'assistant']
      const tool1 = ['assistant', 'tool', 'assistant']
      expect(await oneBranch(session)).toEqual(['user', ...tool1, 'user', ...tools3, 'user', ...tool1])
      expect((await session.nodes()).at(-1)?.message.content).toContain('11')
    })

    test('previous_response_id continues any reply of the session, and no other reply', async () => {
      const session = await gateway().startSession()
      const { responses } = session.openai()
      const tools = [calculatorTool]
      const called = await responses.parse({ model, input: question, tools })
      const first = await responses.parse({ model, input: toolResults(called), tools, previous_response_id: called.id })
      expect(first.output_text).toContain(answer)
      expect(first.previous_response_id).toBe(called.id)
      const stream = responses.stream({ model, input: 'What is 5 + 6?', previous_response_id: first.id })
      const second = await stream.finalResponse()
      expect(second.output_text).toContain('11')
      expect(await oneBranch(session)).toEqual(['user', 'assistant', 'tool', 'assistant', 'user', 'assistant'])
      // Another answer to the first one: a fork.
      await responses.create({ model, input: 'What is 7 + 8?', previous_response_id: first.id })
      expect((await session.nodes()).map(({ parent }) => parent)).toEqual([null, 0, 1, 2, 3, 4, 3, 6])

      const other = await gateway().startSession()
      const failed = other.openai().responses.create({ model, input: 'And?', previous_response_id: first.id })
      await expect(failed).rejects.toThrow(NotFoundError)
      await expect(failed).rejects.toMatchObject({ param: 'previous_response_id' })
    })

    test('a token limit leaves a reply incomplete', async () => {
      const session = await gateway().startSession()
      const { responses } = session.openai()
      const request = { model, input: question, max_output_tokens: 2 }
      const whole = await responses.create(request)
      const cut = { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }
      expect(whole).toMatchObject({ ...cut, usage: { output_tokens: 2 } })
      const final = await responses.stream(request).finalResponse()
      expect(final).toMatchObject({ ...cut, usage: { output_tokens: 2 } })
    })
  },
)

function textIn({ output }: Response): string {
  const parts = output.flatMap((item) => (item.type === 'message' ? item.content : []))
  return parts.map((part) => (part.type === 'output_text' ? part.text : '')).join('')
}

function callsIn({ output }: Pick<Response, 'output'>): string[] {
  return output.flatMap((item) => (item.type === 'function_call' ? [item.name] : []))
}

function toolResults({ output }: Pick<Response, 'output'>): ResponseInput {
  return output.flatMap((item) => {
    if (item.type !== 'function_call') return []
    const { call_id, name } = item
    return [{ type: 'function_call_output' as const, call_id, output: runTool(name, JSON.parse(item.arguments)) }]
  })
}
