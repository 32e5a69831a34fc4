import { join } from 'node:path'
import { defineEnvironment, evaluate, forkRollout, replayRun, RunReader, z, type Backend } from 'millrace'
import { calls, runScripted, ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'

let made = 0

/** Both tools are answered from the recording; the second one's figures come from a child of it. */
const environment = defineEnvironment({
  name: 'reporting',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'Go.',
  tools: {
    look: {
      parameters: z.object({}),
      resume: 'reuse',
      run: (_, { metric, note }) => {
        made += 1
        metric('looks', made)
        note('seen', { at: made })
        return 'found'
      },
    },
    ask: {
      parameters: z.object({}),
      resume: 'reuse',
      run: async (_, { child }) => (await child({ prompt: 'Help.', tools: ['think'] })).answer,
    },
    think: {
      parameters: z.object({}),
      resume: 'reuse',
      run: async (_, { metric }) => {
        metric('thoughts', made)
        await Promise.resolve()
        return 'thought'
      },
    },
  },
  reward: () => 1,
})

const script: Script = ({ messages }) => {
  const turn = messages.filter(({ role }) => role === 'assistant').length
  if (messages[0]?.content === 'Help.') return turn === 0 ? calls({ think: {} }) : 'helped'
  return turn === 0 ? calls({ look: {}, ask: {} }) : 'done'
}

const scripted = { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] }

async function sit(root: string, backend: Backend, signal?: AbortSignal): Promise<unknown> {
  const evaluation = evaluate({
    environment,
    model: scripted,
    backends: { scripted: [backend] },
    preflight: false,
    run: { root, name: 'reporting' },
    ...(signal && { signal }),
  })
  const [record] = await Array.fromAsync(evaluation)
  return record
}

test('metrics and notes of tools are kept when a rollout is resumed, replayed or forked', async () => {
  await using runs = await temporaryRuns()
  const stop = new AbortController()
  const cutOff = new ScriptedBackend((request) => {
    if (request.messages.length < 4) return script(request)
    stop.abort()
    return new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)))
  })
  await sit(runs.root, cutOff, stop.signal)
  const reported = { metrics: { looks: 1, thoughts: 1 }, info: { seen: { at: 1 } } }
  expect(await sit(runs.root, new ScriptedBackend(script))).toMatchObject({ attempt: 1, reward: 1, ...reported })

  using reader = RunReader.open(join(runs.root, 'reporting'))
  expect(await Array.fromAsync(replayRun(reader, { environment }))).toMatchObject([{ verdict: 'identical' }])

  const fork = await forkRollout(reader, {
    rollout: '0-0',
    turn: 1,
    environment,
    preflight: false,
    model: scripted,
    backends: { scripted: [new ScriptedBackend(script)] },
    run: { root: runs.root, name: 'forked' },
  })
  expect(await Array.fromAsync(fork)).toMatchObject([reported])
  expect(made).toBe(1)
})

test('reports of concurrent calls about the same name are applied in call order', async () => {
  await using runs = await temporaryRuns()
  const { promise: said, resolve: onSaid } = Promise.withResolvers<void>()
  const telling = defineEnvironment({
    name: 'telling',
    task: z.object({}),
    tasks: () => [{}],
    prompt: () => 'Go.',
    tools: {
      slow: {
        parameters: z.object({}),
        resume: 'reuse',
        run: async (_, { metric }) => {
          await said
          metric('told', 1)
          return 'said'
        },
      },
      quick: {
        parameters: z.object({}),
        resume: 'reuse',
        run: (_, { metric }) => {
          metric('told', 2)
          onSaid()
          return 'said'
        },
      },
    },
    reward: () => 1,
  })
  const told: Script = ({ messages }) => (messages.length === 1 ? calls({ slow: {}, quick: {} }) : 'done')
  const [record] = await Array.fromAsync(
    evaluate({
      environment: telling,
      model: scripted,
      backends: { scripted: [new ScriptedBackend(told)] },
      preflight: false,
      run: { root: runs.root, name: 'telling' },
    }),
  )
  expect(record).toMatchObject({ metrics: { told: 2 } })
  using reader = RunReader.open(join(runs.root, 'telling'))
  expect(await Array.fromAsync(replayRun(reader, { environment: telling }))).toMatchObject([{ verdict: 'identical' }])
})

test.each(['metric', 'note'] as const)('a %s with a reserved name is refused', async (what) => {
  const { records } = await runScripted({
    environment: defineEnvironment({
      name: 'refused',
      task: z.object({}),
      tasks: () => [{}],
      prompt: () => 'Go.',
      reward: (context) => {
        context[what]('__proto__', 1)
        return 1
      },
    }),
    script: () => 'done',
  })
  expect(records).toMatchObject([{ outcome: 'reward_error', reward: null }])
  expect(records[0]?.error?.message).toContain(`a ${what} cannot be called "__proto__"`)
})
