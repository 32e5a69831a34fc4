import { fileURLToPath } from 'node:url'
import { defineEnvironment, evaluate, SimulatorServer, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunReader } from '../src/store/index.ts'

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 5))
}

// Side by side, because both wait for as long as a backend is given to come back.
test.concurrent('a drain does not wait for a backend that is gone: what waits for it goes on in the next sitting', async () => {
  await using runs = await temporaryRuns()
  const server = await SimulatorServer.start()
  const { url, port } = server
  const gone = Promise.withResolvers<void>()
  let toolCalls = 0
  const environment = defineEnvironment({
    name: 'two-turns',
    task: z.object({ sum: z.string() }),
    tasks: () => Array.from({ length: 4 }, (_, i) => ({ sum: `${i} + 1` })),
    prompt: ({ task }) => `What is ${task.sum}? Use the calculator.`,
    tools: {
      calculator: {
        parameters: z.object({ expression: z.string() }),
        resume: 'rerun',
        run: async () => {
          toolCalls += 1
          await gone.promise
          return 'a number'
        },
      },
    },
    reward: () => 1,
  })
  const model = { name: 'm', backends: [{ url }] }
  const options = { environment, model, preflight: false, seed: 1, run: { root: runs.root, name: 'it' } }
  const run = evaluate(options)
  await until(() => toolCalls === 4)
  await server[Symbol.asyncDispose]()
  gone.resolve()
  await until(() => run.progress().models.some(({ parked }) => parked === 4))
  run.drain()
  expect(await run.summary()).toMatchObject({ end: 'drained', state: 'unfinished', rollouts: 0 })
  using reader = RunReader.open(`${runs.root}/it`)
  expect(Array.from(reader.unfinished(), ({ state }) => state)).toEqual(Array(4).fill('cut-off'))

  await using second = await SimulatorServer.start({ port })
  const records = await Array.fromAsync(evaluate(options))
  expect(records.map(({ attempt, outcome }) => `${outcome} in attempt ${attempt}`)).toEqual(
    Array(4).fill('completed in attempt 1'),
  )
  // Each has its first turn from the journal.
  expect(second.stats.requests).toBe(records.reduce((sum, { turns }) => sum + turns - 1, 0))
})

test.concurrent('nor does a drain of worker processes, each of which probes the backend', async () => {
  await using runs = await temporaryRuns()
  const server = await SimulatorServer.start()
  const { url } = server
  await server[Symbol.asyncDispose]()
  const run = evaluate({
    environment: fileURLToPath(new URL('fixtures/worker-arithmetic.ts', import.meta.url)),
    workers: 4,
    concurrency: 16,
    model: { name: 'm', backends: [{ url }] },
    preflight: false,
    run: { root: runs.root, name: 'it' },
  })
  await until(() => run.progress().models.some(({ parked }) => parked === 16))
  run.drain()
  expect(await run.summary()).toMatchObject({ end: 'drained', state: 'unfinished', rollouts: 0 })
})
