import {
  defineEnvironment,
  evaluate,
  parallel,
  plan,
  reflect,
  singleTurn,
  userSimulator,
  z,
  type Agent,
} from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import arithmetic from '../../examples/arithmetic/environment.ts'

async function play(environment: typeof arithmetic, skill: number) {
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

test.each([
  ['singleTurn', sums(singleTurn())],
  ['plan', sums(plan())],
  ['userSimulator', asked],
  ['reflect', sums(reflect())],
  ['parallel by vote', sums(parallel())],
  ['parallel by a model that selects', sums(parallel({ attempts: 2, choose: 'select' }))],
  ['parallel by a model that merges', sums(parallel({ attempts: 2, choose: 'merge' }))],
])('a skilled model solves arithmetic with %s, and a weaker one less of it', async (_, environment) => {
  const [skilled, weaker] = await Promise.all([play(environment, 1), play(environment, 0.7)])
  expect(skilled.mean).toBe(1)
  expect(weaker.mean).toBeLessThan(0.95)
  expect(weaker.mean).toBeGreaterThan(0.2)
  for (const { outcome } of [...skilled.records, ...weaker.records]) expect(outcome).toBe('completed')
})
