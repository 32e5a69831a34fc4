import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { defineEnvironment, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { ServedAgents } from '../../src/serve/index.ts'
import { fixture, millrace } from '../support/cli/millrace-process.ts'
import { startServe } from '../support/serve/serve-process.ts'
import { TestAgents } from '../support/serve/test-agents.ts'
import { echo, HeldAnswers, wordEnvironment } from '../support/serve/test-server.ts'

const shouts = defineEnvironment({
  name: 'shouts: all of them',
  task: z.object({ shout: z.string() }),
  tasks: () => [],
  prompt: ({ task }) => task.shout.toUpperCase(),
  reward: () => 0.5,
})

test('several environments share a port, each with its own run, and the first needs no prefix', async () => {
  await using server = await TestAgents.start(
    { environment: wordEnvironment, script: echo },
    { environment: shouts, script: echo },
  )
  expect(server.agents.names).toEqual(['words', 'shouts-all-of-them'])
  const answerAt = async (path: string, body: object): Promise<unknown> => {
    const { id, answer } = (await (await server.post(path, body)).json()) as { id: string; answer: string }
    return [id, answer]
  }
  expect(await answerAt('/v1/rollouts', { task: { word: 'a' } })).toEqual(['0-0', 'you said a'])
  expect(await answerAt('/agents/words/v1/rollouts', { task: { word: 'b' } })).toEqual(['1-0', 'you said b'])
  const shout = { requestId: 'one', task: { shout: 'c' } }
  expect(await answerAt('/agents/shouts-all-of-them/v1/rollouts', shout)).toEqual(['0-0', 'you said C'])

  expect(await server.json('/agents/words/v1/rollouts')).toMatchObject({ rollouts: [{ id: '1-0' }, { id: '0-0' }] })
  expect(await server.json('/agents/shouts-all-of-them/v1/requests/one')).toMatchObject({ state: 'ended' })
  expect(await server.json('/agents/shouts-all-of-them/v1/rollouts/0-0')).toMatchObject({ reward: 0.5 })
  const [first, second] = server.agents.entries.map(([, { info }]) => info.folder)
  expect(first).not.toBe(second)
})

test('an agent that is not served is a 404 with the names of those that are', async () => {
  await using server = await TestAgents.start({ environment: wordEnvironment, script: echo })
  const reply = await server.post('/agents/wrods/v1/rollouts', { task: { word: 'a' } })
  expect(reply.status).toBe(404)
  expect(await reply.json()).toMatchObject({
    error: { code: 'usage', message: 'there is no agent wrods; this server has words. Did you mean words?' },
  })
})

test('metrics of several runs carry the run, and a call is counted once', async () => {
  await using server = await TestAgents.start(
    { environment: wordEnvironment, script: echo, run: { name: 'first' } },
    { environment: shouts, script: echo, run: { name: 'second' } },
  )
  await (await server.post('/v1/rollouts', { task: { word: 'a' } })).text()
  await (await server.post('/agents/shouts-all-of-them/v1/rollouts', { task: { shout: 'b' } })).text()
  const text = await (await fetch(`${server.url}/metrics`)).text()
  const linesOf = (name: string): string[] => text.split('\n').filter((line) => line.startsWith(name))
  expect(linesOf('millrace_rollouts_total')).toEqual([
    'millrace_rollouts_total{run="first",environment="words",outcome="completed"} 1',
    'millrace_rollouts_total{run="second",environment="shouts: all of them",outcome="completed"} 1',
  ])
  expect(linesOf('millrace_serve_requests_total')).toEqual([
    'millrace_serve_requests_total{run="first"} 1',
    'millrace_serve_requests_total{run="second"} 1',
  ])
  expect(linesOf('millrace_model_calls_total')).toEqual([
    'millrace_model_calls_total{model="scripted",status="complete"} 2',
  ])
  expect(linesOf('process_cpu')).toHaveLength(1)
  expect(text.match(/^# TYPE millrace_rollouts_running /gm)).toHaveLength(1)
})

test('a service that fails is named by /ready, and the others go on', async () => {
  const onSettled = (): void => {
    throw new Error('mine')
  }
  await using server = await TestAgents.start(
    { environment: wordEnvironment, script: echo, onSettled },
    { environment: shouts, script: echo },
  )
  expect(await server.json('/ready')).toEqual({ status: 'ready' })
  const failed = await server.post('/v1/rollouts', { task: { word: 'a' } })
  expect(failed.status).toBe(500)
  expect(await server.json('/ready')).toEqual({ status: 'not ready', why: 'words: the server is failed' })
  const shout = await server.post('/agents/shouts-all-of-them/v1/rollouts', { task: { shout: 'b' } })
  expect(await shout.json()).toMatchObject({ outcome: 'completed' })
  expect(server.agents.failure.aborted).toBe(false)
})

test('all services drain at once, and running rollouts end', async () => {
  const [first, second] = [new HeldAnswers(), new HeldAnswers()]
  await using server = await TestAgents.start(
    { environment: wordEnvironment, script: first.script },
    { environment: shouts, script: second.script },
  )
  const replies = [
    server.post('/v1/rollouts', { task: { word: 'a' } }),
    server.post('/agents/shouts-all-of-them/v1/rollouts', { task: { shout: 'b' } }),
  ]
  await expect.poll(() => first.asked.size + second.asked.size).toBe(2)
  const drained = server.agents.drain()
  expect((await server.post('/agents/shouts-all-of-them/v1/rollouts', { task: { shout: 'c' } })).status).toBe(503)
  second.release('B')
  first.release('a')
  await drained
  for (const reply of replies) expect(await (await reply).json()).toMatchObject({ outcome: 'completed' })
})

test.each([
  ['no path can carry', ['a b'], /"a b" is not a name for an agent/],
  ['two have', ['same', 'same'], /two environments have the name same/],
])('a name that %s is refused before anything is opened', async (_what, names, why) => {
  await using runs = await temporaryRuns()
  const options = { environment: wordEnvironment, model: 'sim', run: { root: runs.root } }
  const opening = ServedAgents.open(names.map((name) => ({ ...options, name })))
  await expect(opening).rejects.toMatchObject({ code: 'config_invalid', message: expect.stringMatching(why) as string })
})

test('if a later service cannot be opened, the run of the first is given up', async () => {
  await using runs = await temporaryRuns()
  const first = { environment: wordEnvironment, model: 'sim', run: { root: runs.root, name: 'first' } }
  await expect(ServedAgents.open([first, { ...first, name: 'other', environment: 'no-such-thing' }])).rejects.toThrow(
    /there is no environment/,
  )
  await using agents = await ServedAgents.open([first])
  expect(agents.get().info.name).toBe('first')
})

test('the command serves environments by name, and those of a file', async () => {
  await using runs = await temporaryRuns()
  const services = join(runs.root, 'services.yaml')
  await writeFile(services, `sums:\n  environment: ${fixture('counting.ts')}\n`)
  const words = ['math=arithmetic', '-m', 'sim', '--services', services, '--runs', runs.root, '--run', 'port']
  await using server = await startServe(runs.root, ...words)
  const at = async (name: string, task: object): Promise<unknown> => {
    const headers = { 'content-type': 'application/json' }
    const body = JSON.stringify({ task })
    return await (await fetch(`${server.url}/agents/${name}/v1/rollouts`, { method: 'POST', headers, body })).json()
  }
  expect(await at('math', { expression: '6 * 7', answer: 42 })).toMatchObject({ environment: 'arithmetic' })
  expect(await at('sums', { left: 1, right: 2 })).toMatchObject({ outcome: 'completed' })
  expect(server.running.stdout()).toMatch(/\(runs port-math, port-sums\)/)
  server.running.process.kill('SIGTERM')
  expect((await server.running.ended).code).toBe(0)
})

test('how NeMo Gym is told of failures is refused where nobody speaks its protocol', async () => {
  await using runs = await temporaryRuns()
  const words = 'serve arithmetic -m sim --nemo-gym-failures status'.split(' ')
  const { code, stderr } = await millrace({ cwd: runs.root }, ...words)
  expect([code, stderr]).toEqual([2, expect.stringContaining('--nemo-gym-failures is for --nemo-gym')])
})
