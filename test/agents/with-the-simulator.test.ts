import {
  defineEnvironment,
  evaluate,
  nonExecuting,
  orchestrate,
  parallel,
  plan,
  refine,
  reflect,
  singleTurn,
  toolLoop,
  userSimulator,
  z,
  type Agent,
  type Environment,
} from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import arithmetic from '../../examples/arithmetic/environment.ts'

async function play(environment: Environment, skill: number) {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment,
    model: { name: 'sim', simulator: { skill } },
    limit: 30,
    seed: 1,
    run: { root: runs.root },
  })
  const records = await Array.fromAsync(evaluation)
  return { records, mean: (await evaluation.summary()).score?.mean ?? Number.NaN }
}

const sums = (agent: Agent) => defineEnvironment({ ...arithmetic, agent })

/** The sum stands in what the user wants, and the policy must be asked for it. */
const asked = defineEnvironment({
  ...sums(userSimulator({ personaField: 'wish' })),
  task: z.object({ expression: z.string(), answer: z.number(), wish: z.string() }),
  async *tasks(options) {
    for await (const task of arithmetic.tasks(options) as AsyncIterable<{ expression: string; answer: number }>) {
      yield { ...task, wish: `What is ${task.expression}? End with a line \`Answer: <number>\`.` }
    }
  },
  prompt: () => [{ role: 'system' as const, content: 'You are a calculator that talks.' }],
})

/** Tells of a wrong answer that it is wrong. */
const corrected = defineEnvironment({
  ...sums(refine({ turns: 2 })),
  feedback: ({ reward }) => (reward === 1 ? undefined : 'That is wrong. Try again.'),
})

/** The call is the answer: nothing runs it. */
const proposed = defineEnvironment({
  ...sums(nonExecuting()),
  task: z.object({ expression: z.string(), answer: z.number() }),
  reward: ({ task, messages }) => {
    const last = messages.at(-1)
    const [call] = (last?.role === 'assistant' && last.tool_calls) || []
    return call?.function.arguments === JSON.stringify({ expression: task.expression })
  },
})

/** The lead has no calculator, and the agent sees one sum only. */
const divided = defineEnvironment({
  ...arithmetic,
  task: z.object({ expressions: z.array(z.string()), answer: z.number() }),
  tasks: () =>
    Array.from({ length: 30 }, (_, index) => {
      const factors = [index + 3, index + 11]
      return {
        expressions: factors.map((factor) => `${factor} * 7`),
        answer: factors.reduce((sum, each) => sum + each * 7, 0),
      }
    }),
  prompt: ({ task }) => `Ask your agent for the area of each field, then add up the areas:
${task.expressions.map((expression) => `- surveyor: What is ${expression}?`).join('\n')}`,
  agent: orchestrate({ agents: { surveyor: { description: 'Works out an area.', tools: ['calculator'] } }, tools: [] }),
  reward: ({ task, answer }) => answer.includes(String(task.answer)),
})

test.each([
  ['toolLoop', sums(toolLoop())],
  ['nonExecuting', proposed],
  ['refine', corrected],
  ['orchestrate', divided],
  ['singleTurn', sums(singleTurn())],
  ['plan', sums(plan())],
  ['userSimulator', asked],
  ['reflect', sums(reflect())],
  ['parallel by vote', sums(parallel())],
  ['parallel by a model that selects', sums(parallel({ attempts: 2, choose: 'select' }))],
  ['parallel by a model that merges', sums(parallel({ attempts: 2, choose: 'merge' }))],
])('a skilled model solves arithmetic with %s, and a weaker one less of it', async (_, environment) => {
  const [skilled, weaker] = await Promise.all([play(environment, 1), play(environment, 0.6)])
  expect(skilled.mean).toBe(1)
  expect(weaker.mean).toBeLessThan(0.95)
  expect(weaker.mean).toBeGreaterThan(0.2)
  for (const { outcome } of [...skilled.records, ...weaker.records]) expect(outcome).toBe('completed')
})
