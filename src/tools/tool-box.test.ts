import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { activeResources, leftSince } from '../../test/support/kit/active-resources.ts'
import type { ToolCall } from '../schema/index.ts'
import type { CallingToolCall } from './tool-turn.ts'
import { type Tool, ToolAnswer } from './tool.ts'
import { ToolBox } from './tool-box.ts'

class Context {
  readonly signal = new AbortController().signal
  readonly log: string[] = []
  readonly #secret = 'from a private field'

  get secret(): string {
    return this.#secret
  }

  tell(): string {
    return this.#secret
  }

  /** As the context of a rollout does: it is told which call reports. */
  metric(name: string, value: number, asking?: CallingToolCall): void {
    if (asking) (asking.reports.metrics ??= {})[name] = value
  }
}

function tool<Schema extends z.ZodType>(
  parameters: Schema,
  run: Tool<Context, Schema>['run'],
  more: Partial<Tool<Context>> = {},
): Tool<Context> {
  return { ...more, parameters, run }
}

const nothing = z.object({})

let calls = 0
function call(name: string, args: unknown = {}): ToolCall {
  calls += 1
  return {
    id: `call-${calls}`,
    type: 'function',
    function: { name, arguments: typeof args === 'string' ? args : JSON.stringify(args) },
  }
}

async function callOne(definition: Tool<Context>, args: unknown = {}) {
  const box = new ToolBox({ tool: definition })
  const context = new Context()
  const { signal } = context
  const [result] = await box.call([call('tool', args)], { context, signal })
  if (!result) throw new Error('no result')
  return { status: result.record.status, content: result.message.content, context }
}

describe('definitions', () => {
  test('are in the order of declaration, and created once', () => {
    const box = new ToolBox<Context>({
      zebra: tool(z.object({ a: z.string() }), () => '', { description: 'stripes' }),
      ant: tool(nothing, () => ''),
    })
    expect(box.definitions).toEqual([
      {
        type: 'function',
        function: {
          name: 'zebra',
          description: 'stripes',
          parameters: { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] },
        },
      },
      { type: 'function', function: { name: 'ant', parameters: { type: 'object', properties: {} } } },
    ])
    expect(box.definitions).toBe(box.definitions)
  })

  test('refuse an invalid tool name, and parameters without names', () => {
    expect(() => new ToolBox({ 'run it': tool(nothing, () => '') })).toThrow(/"run it" cannot be the name/)
    expect(() => new ToolBox({ run: tool(z.string(), () => '') })).toThrow(/parameters of tool "run" must be an object/)
    expect(() => new ToolBox({ run: tool(z.object({ at: z.date() }), () => '') })).toThrow(/tool "run": .*Date/)
  })
})

describe('one call', () => {
  test('gets validated arguments and the context', async () => {
    const { status, content } = await callOne(
      tool(z.object({ a: z.number().default(2) }), ({ a }, context) => `${a} ${context.secret} ${context.tell()}`),
    )
    expect({ status, content }).toEqual({ status: 'ok', content: '2 from a private field from a private field' })
  })

  test('may validate asynchronously', async () => {
    const schema = z.object({ a: z.string().refine(async (text) => text !== 'bad', 'is bad') })
    const definition = tool(schema, async ({ a }) => ({ a }))
    expect(await callOne(definition, { a: 'good' })).toMatchObject({ status: 'ok', content: '{"a":"good"}' })
    expect(await callOne(definition, { a: 'bad' })).toMatchObject({ status: 'bad_arguments' })
  })

  test('accepts empty arguments', async () => {
    expect(
      await callOne(
        tool(nothing, () => 'fine'),
        '',
      ),
    ).toMatchObject({ status: 'ok', content: 'fine' })
  })

  test.each([
    ['{"city": ', 'not valid JSON'],
    ['{"city": 3}', 'city: expected string, got number'],
    ['[]', 'they are a list, and must be one JSON object'],
  ])('with the arguments %s gets an error that names the problem and the schema', async (text, problem) => {
    const schema = z.object({
      city: z.string(),
      unit: z.enum(['celsius', 'kelvin']).optional(),
      days: z.array(z.int()),
    })
    const { status, content } = await callOne(
      tool(schema, () => ''),
      text,
    )
    expect(status).toBe('bad_arguments')
    expect(content).toContain(`Error: bad arguments for tool: `)
    expect(content).toContain(problem)
    expect(content).toContain('Expected {"city": string, "unit"?: "celsius" | "kelvin", "days": [integer, …]}')
  })

  test.each([
    ['{"id": 9007199254740993}', 'id: the number 9007199254740993'],
    ['{"more": {"ids": [1, -12345678901234567890]}}', 'more.ids[1]: the number -12345678901234567890'],
    ['{"id": 1e999}', 'id: the number 1e999'],
    [`{"id": 1${'0'.repeat(400)}}`, `id: the number 1${'0'.repeat(59)}…`],
  ])('with %s, which would lose precision, is refused', async (text, problem) => {
    const received: unknown[] = []
    const parameters = z.looseObject({})
    const { status, content } = await callOne(
      tool(parameters, (args) => String(received.push(args))),
      text,
    )
    expect({ status, received }).toEqual({ status: 'bad_arguments', received: [] })
    expect(content).toContain(`${problem} cannot be passed on exactly; send it as a string if the tool takes one`)
  })

  test('with a number that a double can hold gets that number', async () => {
    const text = '{"a":9007199254740992,"b":-9007199254740991,"c":1e22,"d":0.1,"e":"9007199254740993","f":-0,"g":1e23}'
    const received: unknown[] = []
    const { status } = await callOne(
      tool(z.looseObject({}), (args) => String(received.push(args))),
      text,
    )
    expect({ status, received }).toEqual({ status: 'ok', received: [JSON.parse(text)] })
  })

  test.each([
    [
      'synchronously',
      () => {
        throw new Error('no such file')
      },
    ],
    ['asynchronously', () => Promise.reject(new MillraceError('tool_failed', 'no such file'))],
  ])('that throws %s shows the message, not the stack', async (_how, run) => {
    expect(await callOne(tool(nothing, run))).toMatchObject({ status: 'failed', content: 'Error: no such file' })
  })

  test('that fails with a long message, or has long arguments, gets a truncated error', async () => {
    const story = 'x'.repeat(1_000_000)
    const thrown = await callOne(tool(nothing, () => Promise.reject(new Error(story))))
    const refused = await callOne(
      tool(z.strictObject({}), () => 'fine'),
      JSON.stringify({ [story]: 1 }),
    )
    for (const { content } of [thrown, refused]) {
      expect(content).toMatch(/^Error: [^]*x{1000}\n\[\d+ of \d+ characters were cut off\]$/)
      expect(content.length).toBeLessThan(300_000)
    }
  })

  test('whose output is not JSON fails', async () => {
    const run = () => 1n as unknown as string
    expect(await callOne(tool(nothing, run))).toMatchObject({
      status: 'failed',
      content: expect.stringContaining('BigInt'),
    })
    expect(await callOne(tool(nothing, async () => run()))).toMatchObject({
      status: 'failed',
      content: expect.stringContaining('BigInt'),
    })
  })

  test('that times out is aborted, with an error', async () => {
    const seen: { reason?: unknown } = {}
    const run = (_: unknown, { signal }: Context) =>
      new Promise<string>((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          seen.reason = signal.reason
          reject(new Error('dropped'))
        })
      })
    expect(await callOne(tool(nothing, run, { timeoutMs: 5 }))).toMatchObject({
      status: 'timeout',
      content: 'Error: tool took longer than 0.005 s and was stopped',
    })
    expect(seen.reason).toMatchObject({ code: 'tool_timeout' })
  })

  test('that ignores its signal is abandoned', async () => {
    const { promise, reject } = Promise.withResolvers<string>()
    expect(await callOne(tool(nothing, () => promise, { timeoutMs: 5 }))).toMatchObject({ status: 'timeout' })
    reject(new Error('nobody hears this'))
  })

  test('sees an aborted signal when it first reads the signal after the timeout', async () => {
    const ended = Promise.withResolvers<boolean>()
    const timedOut = Promise.withResolvers<void>()
    const run = async (_: unknown, context: Context) => {
      await timedOut.promise
      ended.resolve(context.signal.aborted)
      return ''
    }
    expect(await callOne(tool(nothing, run, { timeoutMs: 5 }))).toMatchObject({ status: 'timeout' })
    timedOut.resolve()
    expect(await ended.promise).toBe(true)
  })

  test('may have no time limit', async () => {
    expect(await callOne(tool(nothing, async () => 'done', { timeoutMs: Infinity }))).toMatchObject({ status: 'ok' })
  })
})

describe('an unknown tool', () => {
  test('gets an error with the nearest names and the list', async () => {
    const box = new ToolBox({ calculator: tool(nothing, () => ''), search: tool(nothing, () => '') })
    const context = new Context()
    const [result] = await box.call([call('calculater')], { context, signal: context.signal })
    expect(result?.record).toMatchObject({ name: 'calculater', status: 'unknown_tool' })
    expect(result?.message.content).toBe(
      'Error: there is no tool named "calculater". Did you mean calculator? Tools: calculator, search.',
    )
  })

  test.each(['constructor', '__proto__', 'toString'])('may have the name %s', async (name) => {
    const context = new Context()
    const [result] = await new ToolBox<Context>({}).call([call(name)], { context, signal: context.signal })
    expect(result?.record.status).toBe('unknown_tool')
    expect(result?.message.content).toContain('there are no tools at all')
  })
})

/** Tools whose calls begin and end when the test says so. */
class Stage {
  readonly events: string[] = []
  readonly #open = new Map<string, PromiseWithResolvers<string>>()

  tool(more: Partial<Tool<Context>> = {}): Tool<Context> {
    return tool(
      z.object({ name: z.string() }),
      ({ name }) => {
        this.events.push(`start ${name}`)
        const end = Promise.withResolvers<string>()
        this.#open.set(name, end)
        return end.promise
      },
      more,
    )
  }

  async end(name: string): Promise<void> {
    this.events.push(`end ${name}`)
    this.#open.get(name)?.resolve(name)
    // The turn goes on in microtasks only; a macrotask later they have all run.
    await new Promise(setImmediate)
  }
}

describe('the calls of one turn', () => {
  test('run in parallel and come back in order', async () => {
    const stage = new Stage()
    const box = new ToolBox({ work: stage.tool() })
    const context = new Context()
    const pending = box.call(
      ['a', 'b', 'c'].map((name) => call('work', { name })),
      { context, signal: context.signal },
    )
    for (const name of ['c', 'a', 'b']) await stage.end(name)
    expect((await pending).map(({ message }) => message.content)).toEqual(['a', 'b', 'c'])
    expect(stage.events).toEqual(['start a', 'start b', 'start c', 'end c', 'end a', 'end b'])
  })

  test('wait for an exclusive call', async () => {
    const stage = new Stage()
    const box = new ToolBox({ work: stage.tool(), alone: stage.tool({ exclusive: true }) })
    const context = new Context()
    const names = [
      ['work', 'a'],
      ['work', 'b'],
      ['alone', 'X'],
      ['alone', 'Y'],
      ['work', 'c'],
      ['work', 'd'],
    ] as const
    const pending = box.call(
      names.map(([kind, name]) => call(kind, { name })),
      { context, signal: context.signal },
    )
    for (const name of ['b', 'a', 'X', 'Y', 'c', 'd']) await stage.end(name)
    const results = await pending
    expect(results.map(({ message }) => message.content)).toEqual(['a', 'b', 'X', 'Y', 'c', 'd'])
    expect(stage.events.join(', ')).toBe(
      'start a, start b, end b, end a, start X, end X, start Y, end Y, start c, start d, end c, end d',
    )
  })

  test('leave no timer if all of them answer at once', async () => {
    const box = new ToolBox({ add: tool(z.object({ n: z.number() }), ({ n }) => n + 1, { exclusive: true }) })
    const context = new Context()
    const before = activeResources()
    const results = await box.call([call('add', { n: 1 }), call('add', { n: 2 })], { context, signal: context.signal })
    expect(results.map(({ message }) => message.content)).toEqual(['2', '3'])
    expect(await leftSince(before)).toEqual([])
  })

  test('stop at once when the rollout is stopped, whatever the tools do', async () => {
    const controller = new AbortController()
    const stage = new Stage()
    const signals: AbortSignal[] = []
    const box = new ToolBox({
      deaf: stage.tool(),
      hearing: tool(nothing, (_, { signal }) => {
        signals.push(signal)
        return new Promise<string>(() => {})
      }),
      alone: stage.tool({ exclusive: true }),
    })
    const context = new Context()
    const reason = new MillraceError('cancelled', 'enough')
    const pending = box.call([call('deaf', { name: 'a' }), call('hearing'), call('alone', { name: 'b' })], {
      context,
      signal: controller.signal,
    })
    controller.abort(reason)
    await expect(pending).rejects.toBe(reason)
    expect(signals.map((signal) => signal.reason)).toEqual([reason])
    await stage.end('a')
    expect(stage.events).toEqual(['start a', 'end a'])
    await expect(box.call([call('deaf', { name: 'c' })], { context, signal: controller.signal })).rejects.toBe(reason)
  })

  test.each(['at once', 'later'])('stop when one of them ends the rollout and fails %s', async (when) => {
    const controller = new AbortController()
    const reason = new MillraceError('cancelled', 'enough')
    const stop = tool(nothing, () => {
      controller.abort(reason)
      if (when === 'later') return Promise.reject(new Error('dropped'))
      throw new Error('dropped')
    })
    const context = new Context()
    const { signal } = controller
    await expect(new ToolBox({ stop }).call([call('stop')], { context, signal })).rejects.toBe(reason)
  })

  test.each(['tool_infra', 'replay_diverged', 'store_failed', 'disk_full'] as const)(
    'end with the attempt on %s, and their signals are aborted',
    async (code) => {
      const error = new MillraceError(code, 'gone')
      const signals: AbortSignal[] = []
      const box = new ToolBox({
        waits: tool(nothing, (_, { signal }) => {
          signals.push(signal)
          return new Promise<string>(() => {})
        }),
        dies: tool(nothing, () => Promise.reject(error)),
        diesAtOnce: tool(nothing, () => {
          throw error
        }),
      })
      const context = new Context()
      const { signal } = context
      const before = activeResources()
      await expect(box.call([call('waits'), call('dies')], { context, signal })).rejects.toBe(error)
      await expect(box.call([call('waits'), call('diesAtOnce')], { context, signal })).rejects.toBe(error)
      expect(signals.map(({ reason }) => reason)).toEqual([error, error])
      expect(await leftSince(before)).toEqual([])
    },
  )
})

describe('on resume', () => {
  const ran: string[] = []
  const counted = (name: string, resume?: Tool['resume']) =>
    tool(
      nothing,
      () => {
        ran.push(name)
        return `${name} anew`
      },
      resume ? { resume } : {},
    )
  const box = new ToolBox({
    again: counted('again', 'rerun'),
    once: counted('once', 'reuse'),
    never: counted('never', 'restart'),
    silent: counted('silent'),
  })

  test('each tool has its rule; the default is restart', () => {
    const rules = ['again', 'once', 'never', 'silent', 'unknown'].map((name) =>
      box.resumeRule({ id: 'c', type: 'function', function: { name, arguments: '{}' } }),
    )
    expect(rules).toEqual(['rerun', 'reuse', 'restart', 'restart', 'reuse'])
  })

  test('recorded results are reused, except for tools with the rule rerun', async () => {
    ran.length = 0
    const context = new Context()
    const results = await box.call([call('again'), call('once'), call('once')], {
      context,
      signal: context.signal,
      recall: ({ id, function: { name } }, index) =>
        index === 2
          ? undefined
          : {
              message: { role: 'tool', tool_call_id: id, content: `${name} recorded` },
              record: { name, status: 'ok', ms: 1 },
            },
    })
    expect(results.map(({ message }) => message.content)).toEqual(['again anew', 'once recorded', 'once anew'])
    expect(ran).toEqual(['again', 'once'])
  })
})

describe('pick', () => {
  const box = new ToolBox({ a: tool(nothing, () => 'A'), b: tool(nothing, () => 'B'), c: tool(nothing, () => 'C') })

  test('keeps the order of declaration and returns the same box again', async () => {
    const picked = box.pick(['c', 'a'])
    expect(picked.definitions.map((definition) => definition.function.name)).toEqual(['a', 'c'])
    expect(box.pick(['c', 'a'])).toBe(picked)
    const context = new Context()
    const results = await picked.call([call('a'), call('b')], { context, signal: context.signal })
    expect(results.map(({ record }) => record.status)).toEqual(['ok', 'unknown_tool'])
  })

  test('refuses unknown tools', () => {
    expect(() => box.pick(['a', 'B'])).toThrow(/no tool "B" to hand on; did you mean "b"/)
  })
})

describe('results and records', () => {
  test('a tool answer has details for the record, and may be a failure', async () => {
    const box = new ToolBox<Context>({
      search: tool(nothing, () => new ToolAnswer('found', { detail: { server: 'web' } })),
      broken: tool(nothing, async () => new ToolAnswer('no such page', { isError: true })),
    })
    const context = new Context()
    const results = await box.call([call('search'), call('broken')], { context, signal: context.signal })
    expect(results.map(({ message, record: { ms: _ms, ...record } }) => [message.content, record])).toEqual([
      ['found', { name: 'search', status: 'ok', detail: { server: 'web' } }],
      ['no such page', { name: 'broken', status: 'failed' }],
    ])
  })

  test('a call that names a server finds only tools of that server', async () => {
    const box = new ToolBox<Context>({
      web_search: tool(nothing, () => 'of the web', { origin: { server: 'web', name: 'search' } }),
      own: tool(nothing, () => 'own'),
    })
    const on = (server: string, name: string) => ({ ...call(name), server })
    const context = new Context()
    const written = [
      on('web', 'search'),
      on('web', 'web_search'),
      on('web', 'own'),
      on('none', 'own'),
      call('web_search'),
    ]
    const results = await box.call(written, { context, signal: context.signal })
    expect(results.map(({ record }) => record.status)).toEqual([
      'ok',
      'unknown_tool',
      'unknown_tool',
      'unknown_tool',
      'ok',
    ])
    expect(results[1]?.message.content).toContain('no tool named "web_search" on server "web"')
  })

  test('calls over the limit of a reply are not made, and the model gets an error', async () => {
    const context = new Context()
    const box = new ToolBox<Context>({ count: tool(nothing, (_, { log }) => `${log.push('called')}`) })
    const written = Array.from({ length: 130 }, () => call('count'))
    const results = await box.call(written, { context, signal: context.signal })
    expect(context.log).toHaveLength(128)
    expect(results.slice(126).map(({ record }) => record.status)).toEqual(['ok', 'ok', 'failed', 'failed'])
    expect(results.at(-1)?.message.content).toContain('at most 128 calls')
  })

  test('metrics of a tool are in the record of its call, unless they come after the answer', async () => {
    const context = new Context()
    let seen: Context | undefined
    const look = tool(nothing, (_, given) => {
      seen = given
      given.metric('before', 1)
      return 'looked'
    })
    const results = await new ToolBox<Context>({ look }).call([call('look')], { context, signal: context.signal })
    seen?.metric('after', 2)
    expect(results.map(({ record }) => record.reports)).toEqual([{ metrics: { before: 1 } }])
  })
})
