import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { Agent, OpenAIProvider, Runner, tool as agentTool } from '@openai/agents'
import { generateText, isStepCount, streamText, tool, type LanguageModel } from 'ai'
import { describe, expect, test } from 'vitest'
import { driftedTokens } from '../../src/inference/token-history.ts'
import {
  modelName,
  repliesWithTokens,
  sharedGateway,
  type TestSession,
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

const gateway = sharedGateway({
  simulator: { tokens: 'lossy', reasoning: true },
  models: { [modelName]: { tokens: 'exact' } },
})

/** Every prompt begins with the prompt and the reply before it, whatever the client made of that. */
async function expectExact(session: TestSession, replies: number): Promise<void> {
  const tokens = (await repliesWithTokens(session)).flatMap((node) => node.tokens ?? [])
  expect(tokens).toHaveLength(replies)
  for (const [index, { promptIds = new Int32Array() }] of tokens.slice(1).entries()) {
    const { promptIds: before = new Int32Array(), ids = new Int32Array() } = tokens[index] ?? {}
    expect(driftedTokens({ promptIds: before, ids }, promptIds)).toBe(0)
  }
}

const models: Readonly<Record<string, (session: TestSession) => LanguageModel>> = {
  chat: (session) => createOpenAI(reached(session)).chat(modelName),
  responses: (session) => createOpenAI(reached(session)).responses(modelName),
  messages: (session) => createAnthropic(reached(session))(modelName),
}

function reached(session: TestSession): { readonly baseURL: string; readonly apiKey: string } {
  const { baseURL, apiKey } = session.reachedBy('key')
  return { baseURL: `${baseURL}/v1`, apiKey }
}

describe.for(Object.entries(models))("Vercel's AI SDK in %s", ([, modelOf]) => {
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
  const common = { instructions: 'Use the tools.', tools, stopWhen: isStepCount(5), maxOutputTokens: 1000 }

  test('keeps its tokens over several calls, whole and streamed', async () => {
    const session = await gateway().startSession()
    const model = modelOf(session)
    const first = await generateText({ ...common, model, prompt: question })
    expect(first.text).toContain(answer)
    const messages = [
      { role: 'user' as const, content: question },
      ...first.responseMessages,
      { role: 'user' as const, content: listQuestion },
    ]
    const second = streamText({ ...common, model, messages })
    expect(await second.text).toContain(listAnswer)
    await expectExact(session, 4)
  })
})

const named = ({ name, description }: { readonly name: string; readonly description: string }) => ({
  name,
  description,
})

describe.for([true, false])("OpenAI's Agents SDK, responses: %s", (useResponses) => {
  test('keeps its tokens over two runs', async () => {
    const session = await gateway().startSession()
    const modelProvider = new OpenAIProvider({ openAIClient: session.openai(), useResponses })
    const runner = new Runner({ modelProvider, tracingDisabled: true })
    const tools = [
      agentTool({ ...named(calculator), parameters: calculatorParameters, execute: (input) => calculate(input) }),
      agentTool({ ...named(delegate), parameters: delegateParameters, execute: (input) => delegated(input) }),
    ]
    const agent = new Agent({ name: 'Adder', instructions: 'Use the tools.', model: modelName, tools })
    const first = await runner.run(agent, question)
    expect(first.finalOutput).toContain(answer)
    const second = await runner.run(agent, [...first.history, { role: 'user', content: listQuestion }])
    expect(second.finalOutput).toContain(listAnswer)
    await expectExact(session, 4)
  })
})
