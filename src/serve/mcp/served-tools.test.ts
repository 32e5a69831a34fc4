import { defineEnvironment, environmentOf } from '../../env/index.ts'
import { z } from 'zod'
import { describe, expect, it } from 'vitest'
import failing from '../../../test/fixtures/failing.ts'
import { counter } from '../../../test/support/serve/counter-environment.ts'
import type { EnvironmentSession } from '../../rollout/index.ts'
import { ServedTools } from './served-tools.ts'
import { HttpToolServer } from './http-tool-server.ts'

const signal = new AbortController().signal

const call = (session: EnvironmentSession, name: string, given = {}, until = signal) =>
  session.call({ id: '1', name, arguments: JSON.stringify(given), signal: until })

const contentOf = async (result: ReturnType<typeof call>) => (await result).message.content

describe('EnvironmentSession', () => {
  it('has its own state, and tears it down once', async () => {
    const { tools, log } = await counter()
    const one = await tools.session({ id: 'one', signal })
    const other = await tools.session({ id: 'other', signal })
    expect(await contentOf(call(one, 'add', { by: 1 }))).toBe('11')
    expect(await contentOf(call(one, 'add', { by: 1 }))).toBe('12')
    expect(await contentOf(call(other, 'add', { by: 5 }))).toBe('15')
    await Promise.all([one.close(), one.close()])
    expect(log).toMatchObject({ setUp: ['one', 'other'], tornDown: [12] })
    await expect(call(one, 'add', { by: 1 })).rejects.toMatchObject({ code: 'closed' })
    await other.close()
    expect(log.tornDown).toEqual([12, 15])
  })

  it('tears down after a failed setup', async () => {
    const { tools, log } = await counter({ setup: () => Promise.reject(new Error('no disk')) })
    await expect(tools.session({ id: 'one', signal })).rejects.toMatchObject({ code: 'setup_failed' })
    expect(log.tornDown).toEqual([undefined])
  })

  it('reports errors of setup and teardown as rollouts do', async () => {
    const loaded = environmentOf(failing, {})
    const at = String.raw`at test/fixtures/failing\.ts:\d+`
    const noSetup = await ServedTools.open(loaded, { task: 0, env: {} })
    await expect(noSetup.session({ id: 'one', signal })).rejects.toMatchObject({
      code: 'setup_failed',
      rawMessage: expect.stringMatching(`^setup threw Error ${at}: no room$`),
    })
    const noTeardown = await ServedTools.open(loaded, { task: 6, env: {} })
    const session = await noTeardown.session({ id: 'two', signal })
    await expect(session.close()).rejects.toMatchObject({
      code: 'teardown_failed',
      rawMessage: expect.stringMatching(`^teardown threw Error ${at}: no broom$`),
    })
  })

  it('tears down after an abandoned setup, and again after its late result', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const { tools, log } = await counter({ setup: () => promise })
    const given = new AbortController()
    const opening = tools.session({ id: 'one', signal: given.signal })
    given.abort(new Error('gone'))
    await expect(opening).rejects.toThrow('gone')
    // It may never come to anything.
    expect(log.tornDown).toEqual([undefined])
    resolve()
    await expect.poll(() => log.tornDown).toEqual([undefined, 10])
  })

  it('runs an exclusive tool alone, in the order of the calls', async () => {
    const { tools, log, release } = await counter()
    await using session = await tools.session({ id: 'one', signal })
    const calls = ['wait', 'wait', 'wait_alone', 'wait'].map((name) => call(session, name))
    await expect.poll(() => log.events).toEqual(['wait starts', 'wait starts'])
    release()
    release()
    await expect.poll(() => log.events.at(-1)).toBe('wait_alone starts')
    release()
    await expect.poll(() => log.events.slice(-2)).toEqual(['wait_alone ends', 'wait starts'])
    release()
    await Promise.all(calls)
  })

  it('continues after an exclusive call was cancelled while it waited', async () => {
    const { tools, log, release } = await counter()
    await using session = await tools.session({ id: 'one', signal })
    const first = call(session, 'wait')
    const given = new AbortController()
    const cancelled = call(session, 'wait_alone', {}, given.signal)
    const last = call(session, 'add', { by: 1 })
    given.abort(new Error('no longer'))
    await expect(cancelled).rejects.toThrow('no longer')
    expect(await contentOf(last)).toBe('11')
    release()
    await first
    expect(log.events).toEqual(['wait starts', 'wait ends'])
  })

  it('refuses calls over the queue limit, and aborts the others when it closes', async () => {
    const { tools, log } = await counter()
    const session = await tools.session({ id: 'one', signal })
    const calls = Array.from({ length: 129 }, () => call(session, 'wait').catch((error: unknown) => error))
    expect(await calls[128]).toMatchObject({ code: 'overloaded' })
    await expect.poll(() => log.events).toHaveLength(64)
    await session.close()
    for (const ended of await Promise.all(calls.slice(0, 128))) expect(ended).toMatchObject({ code: 'closed' })
    expect(log.stopped).toHaveLength(64)
  })

  it('lets tools call the tool servers of the environment until it closes', async () => {
    const { tools: far, log } = await counter()
    await using httpServer = await HttpToolServer.open({ tools: far, version: '1', port: 0, onFault: () => {} })
    const environment = defineEnvironment({
      name: 'near',
      task: z.number(),
      tasks: () => [1],
      prompt: () => '',
      mcpServers: { far: { url: httpServer.url } },
      tools: {
        ask: {
          parameters: z.object({ by: z.number() }),
          run: async (given, { servers, signal: until }) =>
            (await servers.call('far', { tool: 'add', arguments: given, signal: until })).content,
        },
      },
      reward: () => 0,
    })
    await using near = await ServedTools.open(environmentOf(environment, {}), { env: {} })
    const session = await near.session({ id: 'one', signal })
    expect(await contentOf(call(session, 'ask', { by: 1 }))).toBe('11')
    expect(await contentOf(call(session, 'ask', { by: 1 }))).toBe('12')
    await session.close()
    await expect.poll(() => log.tornDown).toEqual([12])
  })

  it('has no model for child rollouts', async () => {
    const { tools } = await counter()
    await using session = await tools.session({ id: 'one', signal })
    expect(await contentOf(call(session, 'delegate'))).toContain('a child rollout needs a model')
  })
})

describe('ServedTools', () => {
  const environment = (tools: object, tasks: readonly unknown[]) =>
    environmentOf({ name: 'small', task: z.number(), tasks: () => tasks, prompt: () => '', reward: () => 0, tools }, {})
  const tools = { stop: { parameters: z.object({}), run: () => '' } }

  it('uses the given task', async () => {
    expect((await ServedTools.open(environment(tools, [7, 8]), { task: 1, env: {} })).task).toEqual({
      index: 1,
      id: '1',
      data: 8,
    })
  })

  it.each([
    [{}, [1], 0, 'small has no tools of its own to serve: declare some in `tools`'],
    [tools, [], 0, 'small has no tasks, and its tools need one to work on'],
    [tools, [1, 2], 2, 'small has 2 tasks, so --task (task) is 0 to 1, not 2'],
    [tools, [1, 'two'], 1, 'expected number'],
  ])('refuses an environment that cannot be served: %#', async (given, tasks, task, message) => {
    await expect(ServedTools.open(environment(given, tasks), { task, env: {} })).rejects.toThrow(message)
  })
})
