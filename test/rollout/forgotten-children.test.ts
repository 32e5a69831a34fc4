import { defineEnvironment, evaluate, z } from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'

const prompt = 'never answered'

/** An environment of which one function asks somebody who never answers, and ends as soon as the question has arrived. */
function forgetful(where: 'tool' | 'update' | 'reward', whom: 'child' | 'judge') {
  const events: string[] = []
  const arrived = Promise.withResolvers<void>()
  const forget = async (answer: Promise<unknown>): Promise<void> => {
    await Promise.race([answer, arrived.promise])
  }
  const environment = defineEnvironment({
    name: 'forgetful',
    task: z.object({}),
    tasks: () => [{}],
    setup: () => ({}),
    prompt: () => 'go',
    tools: {
      ask: {
        parameters: z.object({}),
        run: async (_, { child }) => {
          if (where === 'tool') await forget(child({ prompt }))
        },
      },
    },
    update: async ({ reply, child }) => {
      if (where === 'update' && reply.content === 'done') await forget(child({ prompt }))
      return {}
    },
    reward: async ({ child, judge }) => {
      if (where !== 'reward') return 1
      await forget(whom === 'child' ? child({ prompt }) : judge({ messages: [{ role: 'user', content: prompt }] }))
      return 1
    },
    teardown: () => void events.push('torn down'),
  })
  const script: Script = ({ messages, signal }) => {
    if (messages[0]?.content !== prompt) return messages.at(-1)?.role === 'tool' ? 'done' : calls({ ask: {} })
    signal.addEventListener('abort', () => events.push('given up'), { once: true })
    arrived.resolve()
    return new Promise(() => {})
  }
  return { environment, script, events }
}

test.each([
  ['tool', 'child'],
  ['update', 'child'],
  ['reward', 'child'],
  ['reward', 'judge'],
] as const)('%s: a %s that is not awaited is aborted before teardown', async (where, whom) => {
  const { environment, script, events } = forgetful(where, whom)
  const { records } = await runScripted({ environment, script })
  expect(records[0]).toMatchObject({ outcome: 'completed', reward: 1 })
  expect(events).toEqual(['given up', 'torn down'])
})

test('an abandoned child cannot send more requests', async () => {
  const outcomes = Promise.withResolvers<string[]>()
  const arrived = Promise.withResolvers<void>()
  const environment = defineEnvironment({
    name: 'persistent',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'go',
    reward: async ({ child }) => {
      const askOn = async (): Promise<string[]> => {
        const first = await child({ prompt })
        const second = await child({ prompt: 'again' })
        return [first.outcome, second.outcome]
      }
      askOn().then(outcomes.resolve, outcomes.reject)
      await arrived.promise
      return 1
    },
  })
  const script: Script = ({ messages }) => {
    if (messages[0]?.content !== prompt) return 'done'
    arrived.resolve()
    return new Promise(() => {})
  }
  const { backend } = await runScripted({ environment, script })
  expect(await outcomes.promise).toEqual(['cancelled', 'cancelled'])
  expect(backend.requests.map(({ messages }) => messages[0]?.content)).toEqual(['go', prompt])
})

test('a record does not change after it was returned', async () => {
  await using runs = await temporaryRuns()
  const late = Promise.withResolvers<string>()
  let forgotten: Promise<unknown> | undefined
  const environment = defineEnvironment({
    name: 'late',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'go',
    // Its second reply still comes when the rollout is over.
    agent: async ({ turn }) => {
      await turn()
      forgotten = turn().catch(() => {})
      throw new Error('enough')
    },
    reward: () => 1,
  })
  let asked = 0
  const backend = new ScriptedBackend(() => ((asked += 1) === 1 ? 'at once' : late.promise))
  const run = evaluate({
    environment,
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    preflight: false,
    run: { root: runs.root },
  })
  for await (const { usage } of run) {
    const before = structuredClone(usage)
    late.resolve('late')
    await forgotten
    expect(usage).toEqual(before)
    expect(before.calls).toBe(1)
  }
})
