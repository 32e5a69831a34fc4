import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { MillraceError } from '../../errors/index.ts'
import { seededRandom } from '../../kit/index.ts'
import type { BackendReply, BackendRequest } from '../../apis/backend.ts'
import type { Message, ToolDefinition } from '../../schema/index.ts'
import { Simulator } from './simulator.ts'

const calculator: ToolDefinition = {
  type: 'function',
  function: {
    name: 'calculator',
    parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  },
}

function asking(question: string, rest: Partial<BackendRequest> = {}): BackendRequest {
  return {
    messages: [{ role: 'user', content: question }],
    tools: [],
    sampling: {},
    captureTokens: false,
    sessionId: 'test',
    retry: 0,
    signal: new AbortController().signal,
    ...rest,
  }
}

/** What came of it, as a value: the reply, or the error's code. */
function outcomeOf(sent: Promise<BackendReply>): Promise<BackendReply | string> {
  return sent.catch((error: unknown) => (error as MillraceError).code)
}

async function shareOf(count: number, isHit: (seed: number) => Promise<boolean>): Promise<number> {
  let hits = 0
  for (let seed = 0; seed < count; seed += 1) if (await isHit(seed)) hits += 1
  return hits / count
}

describe('answers', () => {
  test('depend on seeds and content, never on the order of arrival', async () => {
    const options = { seed: 3, skill: 0.6, sloppiness: 0.3, faults: { rateLimit: 0.1, serverError: 0.1, cut: 0.1 } }
    const requests = Array.from({ length: 200 }, (_, index) =>
      asking(`What is ${index % 20} + ${index % 7}?`, {
        tools: index % 2 === 0 ? [calculator] : [],
        sampling: { seed: index },
        retry: index % 3,
        captureTokens: true,
      }),
    )
    await using first = new Simulator(options)
    const inOrder: (BackendReply | string)[] = []
    for (const request of requests) inOrder.push(await outcomeOf(first.send(request)))

    const random = seededRandom(5)
    const shuffled = requests.map((request, index) => ({ request, index, place: random() }))
    shuffled.sort((left, right) => left.place - right.place)
    await using second = new Simulator({ ...options, ttftMs: 3, spread: 1 })
    const outOfOrder: (BackendReply | string)[] = []
    await Promise.all(
      shuffled.map(async ({ request, index }) => {
        outOfOrder[index] = await outcomeOf(second.send(request))
      }),
    )
    const withoutTime = (outcome: BackendReply | string) =>
      typeof outcome === 'string' ? outcome : { ...outcome, firstTokenMs: 0 }
    expect(outOfOrder.map(withoutTime)).toEqual(inOrder.map(withoutTime))
  })

  test('are the same after a restart, under another id', async () => {
    const messages = [{ role: 'user', content: 'What is 12 + 3?' }] as const
    const body = Buffer.from(JSON.stringify({ model: 'sim', messages }))
    const named: { readonly id: unknown; readonly message: unknown }[] = []
    for (let start = 0; start < 2; start += 1) {
      await using simulator = new Simulator()
      const { raw, message } = await simulator.send(asking('What is 12 + 3?', { body, stream: false }))
      const { id }: { id?: unknown } = raw?.document ?? {}
      named.push({ id, message })
    }
    const [first, second] = named
    expect(second?.message).toEqual(first?.message)
    expect(second?.id).not.toBe(first?.id)
  })

  test('are right about as often as the skill option says', async () => {
    await using simulator = new Simulator({ skill: 0.8 })
    const share = await shareOf(2000, async (seed) => {
      const reply = await simulator.send(asking('What is 17 * 3?', { sampling: { seed } }))
      return reply.message.content === 'The answer is 51.'
    })
    expect(share).toBeGreaterThan(0.77)
    expect(share).toBeLessThan(0.83)
  })

  test('change with either seed', async () => {
    await using simulator = new Simulator({ skill: 0.5 })
    await using other = new Simulator({ skill: 0.5, seed: 1 })
    const answers = async (backend: Simulator, offset: number) => {
      const texts: (string | null)[] = []
      for (let seed = offset; seed < offset + 30; seed += 1) {
        texts.push((await backend.send(asking('What is 17 * 3?', { sampling: { seed } }))).message.content)
      }
      return texts
    }
    const base = await answers(simulator, 0)
    expect(await answers(simulator, 0)).toEqual(base)
    expect(await answers(simulator, 1000)).not.toEqual(base)
    expect(await answers(other, 0)).not.toEqual(base)
  })

  test.each([
    ['random', {}, 'differs'],
    ['random', { temperature: 0.7 }, 'differs'],
    ['random', { temperature: 0 }, 'is the same'],
    ['random', { seed: 4 }, 'is the same'],
    [7, {}, 'is the same'],
  ] as const)('with the seed %j, an answer to %j asked 64 times %s', async (seed, sampling, which) => {
    await using simulator = new Simulator({ seed, skill: 0.5 })
    const answers = new Set<unknown>()
    for (let count = 0; count < 64; count += 1) {
      answers.add((await simulator.send(asking('What is 17 + 25?', { sampling }))).message.content)
    }
    expect(answers.size > 1 ? 'differs' : 'is the same').toBe(which)
  })

  test('hold invalid tool calls about as often as the sloppiness option says', async () => {
    await using simulator = new Simulator({ sloppiness: 0.5 })
    const kinds = new Set<string>()
    const share = await shareOf(1000, async (seed) => {
      const reply = await simulator.send(asking('What is 17 * 3?', { sampling: { seed }, tools: [calculator] }))
      const { name, arguments: written } = reply.message.tool_calls?.[0]?.function ?? { name: '', arguments: '' }
      if (name === 'calculator' && written === '{"expression":"17 * 3"}') return false
      kinds.add(name === 'calculator' ? written : name)
      return true
    })
    expect(share).toBeGreaterThan(0.45)
    expect(share).toBeLessThan(0.55)
    expect(kinds.size).toBeGreaterThanOrEqual(6)
  })

  test('respect the tool choice', async () => {
    await using simulator = new Simulator()
    const ask = (question: string, rest: Partial<BackendRequest>) =>
      simulator.send(asking(question, { tools: [calculator], ...rest }))
    expect((await ask('What is 1 + 2?', { toolChoice: 'none' })).message.content).toBe('The answer is 3.')
    expect((await ask('Who wrote Hamlet?', { toolChoice: 'required' })).finishReason).toBe('tool_calls')
    const named = await ask('Who wrote Hamlet?', { toolChoice: { name: 'calculator' } })
    expect(named.message.tool_calls?.[0]?.function.name).toBe('calculator')
    await expect(ask('Who?', { toolChoice: { name: 'nothing' } })).rejects.toMatchObject({ code: 'model_rejected' })
  })

  test('include reasoning if configured', async () => {
    await using simulator = new Simulator({ reasoning: true })
    const { message, usage } = await simulator.send(asking('What is 1 + 2?'))
    expect(message.reasoning_content).toMatch(/step by step/)
    expect(usage.reasoning).toBeGreaterThan(5)
    expect(usage.output).toBeGreaterThan(usage.reasoning)
  })

  test('end before a stop sequence', async () => {
    await using simulator = new Simulator()
    const { message } = await simulator.send(asking('What is 1 + 2?', { sampling: { stop: ['is'] } }))
    expect(message.content).toBe('The answer ')
  })
})

describe('tokens', () => {
  test('match the usage, with log-probabilities and the version', async () => {
    await using simulator = new Simulator({ weightVersion: '7', reasoning: true })
    const request = asking('What is 1 + 2?', { tools: [calculator], captureTokens: true })
    const { tokens, usage } = await simulator.send(request)
    expect(tokens?.ids).toBeInstanceOf(Int32Array)
    expect(tokens?.logprobs).toBeInstanceOf(Float32Array)
    expect(tokens?.ids.length).toBe(usage.output)
    expect(tokens?.logprobs.length).toBe(usage.output)
    expect(tokens?.promptIds?.length).toBe(usage.input)
    expect(tokens?.version).toBe('7')
    expect(Math.max(...(tokens?.logprobs ?? [1]))).toBeLessThanOrEqual(0)
    const { usage: uncaptured } = await simulator.send({ ...request, captureTokens: false })
    expect(uncaptured).toEqual(usage)
  })

  test('have routed experts if configured', async () => {
    await using simulator = new Simulator({ routedExperts: '6x2' })
    const request = asking('What is 1 + 2?', { tools: [calculator], captureTokens: true })
    const { tokens } = await simulator.send(request)
    expect(tokens?.routedExperts?.shape).toEqual([tokens?.ids.length, 6, 2])
    expect(tokens?.routedExperts?.experts).toHaveLength((tokens?.ids.length ?? 0) * 12)
    expect(new Set(tokens?.routedExperts?.experts).size).toBeGreaterThan(10)
    expect((await simulator.send(request)).tokens?.routedExperts).toEqual(tokens?.routedExperts)
    expect(() => new Simulator({ routedExperts: '6' })).toThrow(/layers x experts per token/)
  })

  test('of a prompt continue those of the previous turn', async () => {
    await using simulator = new Simulator()
    const request = asking('What is 1 + 2?', { tools: [calculator], captureTokens: true })
    const first = await simulator.send(request)
    const id = first.message.tool_calls?.[0]?.id ?? ''
    const second = await simulator.send({
      ...request,
      messages: [...request.messages, first.message, { role: 'tool', tool_call_id: id, content: '3' }],
    })
    const before = [...(first.tokens?.promptIds ?? []), ...(first.tokens?.ids ?? [])]
    expect([...(second.tokens?.promptIds ?? [])].slice(0, before.length)).toEqual(before)
    expect(second.message.content).toBe('The answer is 3.')
  })

  test.each([1, 2, 3, 5, 8, 13, 14, 15, 20])('are limited to %i, at any place of the reply', async (maxTokens) => {
    await using simulator = new Simulator({ reasoning: true })
    const request = asking('What is 1 + 2?', { tools: [calculator], captureTokens: true })
    const whole = await simulator.send(request)
    const cut = await simulator.send({ ...request, sampling: { maxTokens } })
    expect(cut.finishReason).toBe('length')
    expect(cut.usage.output).toBe(maxTokens)
    expect([...(cut.tokens?.ids ?? [])]).toEqual([...(whole.tokens?.ids ?? [])].slice(0, maxTokens))
    const [wholeCall, cutCall] = [whole.message.tool_calls?.[0], cut.message.tool_calls?.[0]]
    if (cutCall) expect(wholeCall?.function.arguments.startsWith(cutCall.function.arguments)).toBe(true)
  })

  test('do not exceed the context length', async () => {
    await using simulator = new Simulator({ contextLength: 16 })
    const short = await simulator.send(asking('1 + 2?'))
    expect(short.finishReason).toBe('stop')
    const failed = { code: 'context_length', data: { status: 400 } }
    await expect(simulator.send(asking('1 + 2? '.repeat(20)))).rejects.toMatchObject(failed)
    await expect(simulator.send(asking('1 + 2?', { sampling: { maxTokens: 50 } }))).rejects.toMatchObject(failed)
  })
})

describe('faults', () => {
  test.each([
    ['rateLimit', 'model_rate_limited', { status: 429, retryAfterMs: 250 }],
    ['serverError', 'model_server_error', { status: 500 }],
    ['cut', 'model_truncated', {}],
    ['malformed', 'model_malformed', {}],
  ] as const)('%s is %s', async (fault, code, data) => {
    await using simulator = new Simulator({ faults: { [fault]: 1 }, retryAfterMs: 250 })
    await expect(simulator.send(asking('1 + 2'))).rejects.toMatchObject({ code, data })
  })

  test('a hang ends only with the signal', async () => {
    await using simulator = new Simulator({ faults: { hang: 1 } })
    const controller = new AbortController()
    const sent = simulator.send(asking('1 + 2', { signal: controller.signal }))
    const gone = new MillraceError('cancelled', 'gone')
    controller.abort(gone)
    await expect(sent).rejects.toBe(gone)
  })

  test('are drawn for each try, at the configured rate', async () => {
    await using simulator = new Simulator({ faults: { serverError: 0.5 } })
    const share = await shareOf(1000, async (retry) => {
      return (await outcomeOf(simulator.send(asking('1 + 2', { retry })))) === 'model_server_error'
    })
    expect(share).toBeGreaterThan(0.45)
    expect(share).toBeLessThan(0.55)
    const twice = await Promise.all([1, 1].map((retry) => outcomeOf(simulator.send(asking('1 + 2', { retry })))))
    expect(twice[0]).toEqual(twice[1])
  })

  test('exclude each other: 30% and 20% make half of all requests fail', async () => {
    await using simulator = new Simulator({ faults: { rateLimit: 0.3, serverError: 0.2 } })
    const codes: string[] = []
    for (let seed = 0; seed < 2000; seed += 1) {
      const outcome = await outcomeOf(simulator.send(asking('1 + 2', { sampling: { seed } })))
      if (typeof outcome === 'string') codes.push(outcome)
    }
    const limited = codes.filter((code) => code === 'model_rate_limited').length
    expect(limited / 2000).toBeCloseTo(0.3, 1)
    expect((codes.length - limited) / 2000).toBeCloseTo(0.2, 1)
  })

  test('slow multiplies the latency by ten', async () => {
    await using usual = new Simulator({ ttftMs: 1, spread: 0 })
    await using slow = new Simulator({ ttftMs: 1, spread: 0, faults: { slow: 1 } })
    expect((await usual.send(asking('1 + 2'))).firstTokenMs).toBe(1)
    expect((await slow.send(asking('1 + 2'))).firstTokenMs).toBe(10)
  })

  test('overload refuses all requests until it ends', async () => {
    await using simulator = new Simulator({ overload: { forMs: 60_000 } })
    const refused = { code: 'model_overloaded', data: { status: 503 } }
    await expect(simulator.send(asking('1 + 2'))).rejects.toMatchObject(refused)
    simulator.setOverload(false)
    await expect(simulator.send(asking('1 + 2'))).resolves.toBeDefined()
    simulator.setOverload(true)
    await expect(simulator.send(asking('1 + 2'))).rejects.toMatchObject(refused)
    simulator.change({ 'overload.afterMs': 60_000 })
    await expect(simulator.send(asking('1 + 2'))).resolves.toBeDefined()
  })

  test('requests over the concurrency limit are rate limited', async () => {
    await using simulator = new Simulator({ maxConcurrent: 2, ttftMs: 5, spread: 0 })
    const sent = await Promise.all(
      [1, 2, 3].map((seed) => outcomeOf(simulator.send(asking('1 + 2', { sampling: { seed } })))),
    )
    expect(sent[2]).toBe('model_rate_limited')
    expect(sent.slice(0, 2).every((outcome) => typeof outcome === 'object')).toBe(true)
    await expect(simulator.send(asking('1 + 2'))).resolves.toBeDefined()
  })
})

describe('latency', () => {
  test('is lognormal around the configured value', async () => {
    await using simulator = new Simulator({ ttftMs: 1000, tokensPerSecond: 10, spread: 0.2 })
    const totals: number[] = []
    for (let seed = 0; seed < 3000; seed += 1) {
      const answer = simulator.enter(asking('1 + 2', { sampling: { seed } }), 0)
      simulator.leave()
      if (answer.kind === 'delivery') totals.push(answer.firstTokenMs)
    }
    const mean = totals.reduce((sum, value) => sum + value, 0) / totals.length
    const deviation = Math.sqrt(totals.reduce((sum, value) => sum + (value - mean) ** 2, 0) / totals.length)
    expect(mean).toBeGreaterThan(970)
    expect(mean).toBeLessThan(1030)
    expect(deviation / mean).toBeGreaterThan(0.18)
    expect(deviation / mean).toBeLessThan(0.22)
    expect(Math.min(...totals)).toBeGreaterThan(300)
  })

  test('grows with the tokens of the reply', async () => {
    await using simulator = new Simulator({ tokensPerSecond: 10, spread: 0 })
    const answer = simulator.enter(asking('What is 1 + 2?'), 0)
    simulator.leave()
    if (answer.kind !== 'delivery') throw new Error('it was refused')
    expect(answer.totalMs).toBeCloseTo(answer.reply.usage.output * 100)
  })
})

describe('close', () => {
  test('fails waiting requests, and may be repeated', async () => {
    const simulator = new Simulator({ faults: { hang: 1 } })
    const waiting = simulator.send(asking('1 + 2'))
    waiting.catch(() => {})
    await Promise.all([simulator.close(), simulator.close()])
    await expect(waiting).rejects.toMatchObject({ code: 'closed' })
    await expect(simulator.send(asking('1 + 2'))).rejects.toMatchObject({ code: 'closed' })
    await simulator[Symbol.asyncDispose]()
  })

  test('1,000 aborted requests leave no timers and no listeners', async () => {
    await using simulator = new Simulator({ faults: { hang: 1 } })
    const before = activeResources()
    const controller = new AbortController()
    const sent = Array.from({ length: 1000 }, (_, seed) =>
      outcomeOf(simulator.send(asking('1 + 2', { sampling: { seed }, signal: controller.signal }))),
    )
    expect(activeResources()['Timeout']).toBe((before['Timeout'] ?? 0) + 1000)
    controller.abort(new MillraceError('cancelled', 'all of them'))
    expect(new Set(await Promise.all(sent))).toEqual(new Set(['cancelled']))
    expect(await leftSince(before)).toEqual([])
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
    simulator.change({ 'faults.hang': 0, maxConcurrent: 1 })
    await expect(simulator.send(asking('1 + 2'))).resolves.toBeDefined()
  })
})

const words = (count: number, word: string): Message => ({ role: 'user', content: `${word} `.repeat(count) })

async function send(simulator: Simulator, clock: FakeClock, messages: readonly Message[]): Promise<BackendReply> {
  const reply = simulator.send(asking('', { messages }))
  await clock.pass(60_000)
  return await reply
}

describe('prompts', () => {
  test('the time to the first token grows with the part of the prompt that is not in the cache', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator({ prefillMs: 1000, prefixCacheTokens: 100_000 })
    const first = [words(1000, 'one')]
    const cold = await send(simulator, clock, first)
    expect(cold.usage.cachedInput).toBe(0)
    expect(cold.firstTokenMs).toBeCloseTo(cold.usage.input)
    const next = [...first, cold.message, words(10, 'two')]
    const warm = await send(simulator, clock, next)
    expect(warm.usage.cachedInput).toBeGreaterThanOrEqual(cold.usage.input)
    expect(warm.firstTokenMs).toBeCloseTo(warm.usage.input - warm.usage.cachedInput)
    expect(warm.firstTokenMs).toBeLessThan(30)
    // Another beginning shares nothing, even if it ends alike.
    const other = await send(simulator, clock, [words(1000, 'three'), cold.message, words(10, 'two')])
    expect(other.usage.cachedInput).toBe(0)
  })

  test('the cache holds as many tokens as it is given, and drops the conversation used least recently', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator({ prefillMs: 1, prefixCacheTokens: 2500 })
    const [one, two, three] = ['one', 'two', 'three'].map((word) => [words(1000, word)])
    if (!one || !two || !three) throw new Error('there are three conversations')
    await send(simulator, clock, one)
    await send(simulator, clock, two)
    await send(simulator, clock, one)
    await send(simulator, clock, three)
    expect((await send(simulator, clock, one)).usage.cachedInput).toBeGreaterThan(1000)
    expect((await send(simulator, clock, two)).usage.cachedInput).toBe(0)
  })

  test('without a cache the whole prompt is charged for each time', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator({ prefillMs: 1000 })
    for (let turn = 0; turn < 2; turn += 1) {
      const { usage, firstTokenMs } = await send(simulator, clock, [words(500, 'one')])
      expect(usage.cachedInput).toBe(0)
      expect(firstTokenMs).toBeCloseTo(usage.input)
    }
  })

  test('more requests than run at once wait their turn', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator({ ttftMs: 100, spread: 0, maxRunning: 2 })
    const ended: number[] = []
    for (let request = 0; request < 5; request += 1) {
      void simulator.send(asking('hi')).then(() => ended.push(request))
    }
    await clock.pass(50)
    expect([simulator.engine.running, simulator.engine.queued]).toEqual([2, 3])
    await clock.pass(60)
    expect(ended).toEqual([0, 1])
    await clock.pass(100)
    expect(ended).toEqual([0, 1, 2, 3])
    await clock.pass(100)
    expect(ended).toEqual([0, 1, 2, 3, 4])
    expect([simulator.engine.running, simulator.engine.queued]).toEqual([0, 0])
  })
})
