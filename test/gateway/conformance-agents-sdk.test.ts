import { Agent, OpenAIProvider, Runner, tool } from '@openai/agents'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import {
  GatewayOverSimulator,
  modelName,
  oneBranch,
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

const tools = [
  tool({
    name: calculator.name,
    description: calculator.description,
    parameters: calculatorParameters,
    execute: (input) => calculate(input),
  }),
  tool({
    name: delegate.name,
    description: delegate.description,
    parameters: delegateParameters,
    execute: (input) => delegated(input),
  }),
]

const agent = new Agent({ name: 'Adder', instructions: 'Use the tools.', model: modelName, tools })

/** Traces would go to OpenAI. */
function runnerFor(session: TestSession, useResponses: boolean): Runner {
  const modelProvider = new OpenAIProvider({ openAIClient: session.openai(), useResponses })
  return new Runner({ modelProvider, tracingDisabled: true })
}

const runs = [
  [question, answer, ['system', 'user', 'assistant', 'tool', 'assistant']],
  [listQuestion, listAnswer, ['system', 'user', 'assistant', 'tool', 'tool', 'tool', 'assistant']],
] as const

describe.for([
  ['responses', true],
  ['chat completions', false],
] as const)("OpenAI's Agents SDK, by %s", ([, useResponses]) => {
  // Its backend speaks Chat: that is where tokens come from.
  const gateway = sharedGateway({ simulator: { reasoning: true } })

  test.for(runs)('an agent works with tools: %s', async ([input, expected, roles]) => {
    const session = await gateway().startSession()
    const { finalOutput } = await runnerFor(session, useResponses).run(agent, input)
    expect(finalOutput).toContain(expected)
    expect(await oneBranch(session)).toEqual(roles)
    expect(await repliesWithTokens(session)).toHaveLength(2)
  })

  test.for(runs)('an agent works with tools in a stream: %s', async ([input, expected, roles]) => {
    const session = await gateway().startSession()
    const result = await runnerFor(session, useResponses).run(agent, input, { stream: true })
    let text = ''
    for await (const piece of result.toTextStream()) text += piece
    await result.completed
    expect(text).toContain(expected)
    expect(result.finalOutput).toContain(expected)
    expect(await oneBranch(session)).toEqual(roles)
    expect(await repliesWithTokens(session)).toHaveLength(2)
  })

  test('a second run with the history of the first continues its branch', async () => {
    const session = await gateway().startSession()
    const runner = runnerFor(session, useResponses)
    const first = await runner.run(agent, question)
    const second = await runner.run(agent, [...first.history, { role: 'user', content: listQuestion }])
    expect(second.finalOutput).toContain(listAnswer)
    expect(await oneBranch(session)).toEqual([...runs[0][2], ...runs[1][2].slice(1)])
    expect(await repliesWithTokens(session)).toHaveLength(4)
  })

  test('an agent used as a tool has its own branch with its own system prompt', async () => {
    const session = await gateway().startSession()
    const helper = new Agent({ name: 'Helper', instructions: 'Answer briefly.', model: modelName })
    const asTool = helper.asTool({ toolName: 'delegate_task', toolDescription: 'Has somebody work out a part.' })
    const lead = new Agent({ name: 'Lead', instructions: 'Hand out the parts.', model: modelName, tools: [asTool] })
    const { finalOutput } = await runnerFor(session, useResponses).run(lead, listQuestion)
    expect(finalOutput).toContain(listAnswer)
    const roots = (await session.nodes()).filter(({ parent }) => parent === null)
    expect(new Set(roots.map(({ message }) => message.content))).toEqual(
      new Set(['Answer briefly.', 'Hand out the parts.']),
    )
    expect(roots).toHaveLength(2)
    expect(await repliesWithTokens(session)).toHaveLength(5)
  })

  test('structured output', async () => {
    const session = await gateway().startSession()
    const outputType = z.object({ name: z.string(), age: z.int() })
    const typed = new Agent({ name: 'Typed', instructions: 'Answer.', model: modelName, outputType })
    const { finalOutput } = await runnerFor(session, useResponses).run(typed, question)
    expect(outputType.parse(finalOutput)).toEqual(finalOutput)
  })
})

test('previous_response_id continues a conversation of the Agents SDK over a Chat backend', async () => {
  await using gateway = await GatewayOverSimulator.start()
  const session = await gateway.startSession()
  const runner = runnerFor(session, true)
  const first = await runner.run(agent, question)
  const { lastResponseId } = first
  if (lastResponseId === undefined) throw new Error('the reply has no id')
  const second = await runner.run(agent, listQuestion, { previousResponseId: lastResponseId })
  expect(second.finalOutput).toContain(listAnswer)
  expect(await oneBranch(session)).toEqual([...runs[0][2], ...runs[1][2].slice(1)])
})
