import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, isStepCount, Output, streamText, tool, type LanguageModel } from 'ai'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import {
  GatewayOverSimulator,
  modelName,
  oneBranch,
  repliesWithTokens,
  sharedGateway,
  type TestSession,
  type Way,
} from '../support/gateway/gateway-over-simulator.ts'
import {
  answer,
  calculate,
  calculator,
  calculatorParameters,
  delegate,
  delegated,
  delegateParameters,
  listAnswer,
  listQuestion,
  question,
} from '../support/gateway/calculator-tools.ts'

const tools = {
  calculator: tool({
    description: calculator.description,
    inputSchema: calculatorParameters,
    execute: (input) => calculate(input),
  }),
  delegate: tool({
    description: delegate.description,
    inputSchema: delegateParameters,
    execute: (input) => delegated(input),
  }),
}

const models = {
  'openai chat': (session: TestSession, way: Way): LanguageModel => openai(session, way).chat(modelName),
  'openai responses': (session: TestSession, way: Way): LanguageModel => openai(session, way).responses(modelName),
  anthropic: (session: TestSession, way: Way): LanguageModel => createAnthropic(versioned(session, way))(modelName),
}

function openai(session: TestSession, way: Way) {
  return createOpenAI(versioned(session, way))
}

function versioned(session: TestSession, way: Way) {
  const { baseURL, apiKey } = session.reachedBy(way)
  return { baseURL: `${baseURL}/v1`, apiKey }
}

const common = { instructions: 'Use the tools.', tools, stopWhen: isStepCount(5), maxOutputTokens: 1000 }

const runs = [
  [question, answer, ['system', 'user', 'assistant', 'tool', 'assistant']],
  [listQuestion, listAnswer, ['system', 'user', 'assistant', 'tool', 'tool', 'tool', 'assistant']],
] as const

// Its backend speaks Chat: that is where tokens come from.
describe.for(Object.entries(models))("Vercel's AI SDK, %s", ([, modelOf]) => {
  const gateway = sharedGateway({ simulator: { reasoning: true } })

  test.for(runs)('generateText works with tools: %s', async ([prompt, expected, roles]) => {
    const session = await gateway().startSession()
    const { text, steps } = await generateText({ ...common, model: modelOf(session, 'key'), prompt })
    expect(text).toContain(expected)
    expect(steps).toHaveLength(2)
    expect(await oneBranch(session)).toEqual(roles)
    expect(await repliesWithTokens(session)).toHaveLength(2)
  })

  test.for(runs)('streamText works with tools: %s', async ([prompt, expected, roles]) => {
    const session = await gateway().startSession()
    const result = streamText({ ...common, model: modelOf(session, 'url'), prompt })
    let text = ''
    for await (const piece of result.textStream) text += piece
    expect(text).toContain(expected)
    expect(await result.finishReason).toBe('stop')
    expect(await oneBranch(session)).toEqual(roles)
    expect(await repliesWithTokens(session)).toHaveLength(2)
  })

  test('a conversation over several calls is one branch', async () => {
    const session = await gateway().startSession()
    const model = modelOf(session, 'key')
    const first = await generateText({ ...common, model, prompt: question })
    const messages = [
      { role: 'user' as const, content: question },
      ...first.responseMessages,
      { role: 'user' as const, content: listQuestion },
    ]
    const second = await generateText({ ...common, model, messages })
    expect(second.text).toContain(listAnswer)
    expect(await oneBranch(session)).toEqual([...runs[0][2], ...runs[1][2].slice(1)])
    expect(await repliesWithTokens(session)).toHaveLength(4)
  })

  test('structured output', async () => {
    const session = await gateway().startSession()
    const schema = z.object({ name: z.string(), age: z.int() })
    const output = Output.object({ schema })
    const model = modelOf(session, 'key')
    const result = await generateText({ model, prompt: question, output, maxOutputTokens: 1000 })
    expect(schema.parse(result.output)).toEqual(result.output)
    expect(await oneBranch(session)).toEqual(['user', 'assistant'])
  })
})

test.for([
  ['responses', 'openai responses'],
  ['messages', 'anthropic'],
] as const)('a client and a backend of %s work together, and each run is one branch', async ([api, name]) => {
  await using gateway = await GatewayOverSimulator.start({ api, simulator: { reasoning: true } })
  for (const [prompt, expected, roles] of runs) {
    for (const run of [generateText, streamText]) {
      const session = await gateway.startSession()
      const model = models[name](session, 'key')
      expect(await (await run({ ...common, model, prompt })).text).toContain(expected)
      expect(await oneBranch(session)).toEqual(roles)
    }
  }
})
