import { cp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { numbering, opening, plain, stripping } from '../../../test/support/tokens/chat-templates.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { idsOf, type Sample, ScriptedEngine } from '../../../test/support/tokens/scripted-engine.ts'
import { simulatorFolder } from '../../../test/support/tokens/simulator-folder.ts'
import { temporaryFolder } from '../../../test/support/tools/temporary-folder.ts'
import type { ModelRequest } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { AssistantMessage, JsonObject, Message, ToolDefinition } from '../../schema/index.ts'
import { modelConfigSchema } from '../config.ts'
import { Model } from '../model/model.ts'
import type { CompleteReply } from '../model-client.ts'
import { TokenHistory } from '../token-history.ts'

const tool = (name: string): ToolDefinition => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { word: { type: 'string' } } } },
})
const tools = [tool('look_up')]

/** A conversation with a model of exact tokens, as a session of a rollout has it. */
class Conversation implements AsyncDisposable {
  readonly engine: ScriptedEngine
  readonly model: Model
  messages: Message[]
  history = new TokenHistory()

  constructor(
    engine: ScriptedEngine,
    messages: readonly Message[] = [{ role: 'user', content: 'Look it up.' }],
    others: readonly ScriptedEngine[] = [],
  ) {
    this.engine = engine
    this.messages = [...messages]
    const config = modelConfigSchema.parse({ name: 'm', tokens: 'exact' })
    this.model = new Model(config, [engine, ...others], { random: () => 0 })
  }

  async ask(more: Partial<ModelRequest> = {}): Promise<CompleteReply> {
    const { messages } = this
    const request: ModelRequest = { tools: [], sampling: {}, messages, captureTokens: true, sessionId: 's', ...more }
    const continues = this.history.before(messages)
    const reply = await this.model.call({ ...request, continues }, { signal: new AbortController().signal })
    if (reply.status !== 'complete') throw reply.error
    this.history.note({ messages, length: messages.length, reply })
    this.messages = [...messages, reply.message]
    return reply
  }

  /** What the last prompt adds to the prompt and the reply before it; undefined if it does not begin with them. */
  added(before: Int32Array, reply: Int32Array): string | undefined {
    const text = this.engine.prompt
    const kept = Int32Array.from([...before, ...reply])
    const begins = this.engine.promptIds.subarray(0, kept.length)
    return kept.every((id, at) => begins[at] === id) ? text.slice(textOf(kept).length) : undefined
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.model.close()
  }
}

const { tokenizer } = await new Model(modelConfigSchema.parse({ name: 'm', tokens: 'exact' }), [
  new ScriptedEngine([]),
]).tokenStream()
const textOf = (ids: Int32Array) => tokenizer.decode(ids)

/** Pieces that the tokenizer would not make of their text. */
const calling: Sample = {
  pieces: [
    '<think>',
    '\nI sh',
    'ould.',
    '\n</think>\n\n<tool_call>\n{"name":"look_',
    'up","arguments":{"word":"a  b"}}\n</tool_call>',
    '<|im_end|>',
  ],
}
const result = ({ tool_calls: calls = [] }: AssistantMessage, content = 'found'): Message => ({
  role: 'tool',
  tool_call_id: calls[0]?.id ?? '',
  content,
})

describe('a later turn', () => {
  test('is the ids of the last prompt and reply, and those of what is new', async () => {
    await using talk = new Conversation(new ScriptedEngine([calling]))
    const { message, finishReason, tokens, usage } = await talk.ask({ tools })
    expect(message).toEqual({
      role: 'assistant',
      content: null,
      reasoning_content: 'I should.',
      tool_calls: [{ id: 'call_0', type: 'function', function: { name: 'look_up', arguments: '{"word":"a  b"}' } }],
    })
    expect(finishReason).toBe('tool_calls')
    const [first, sampled] = [talk.engine.promptIds, idsOf(calling.pieces)]
    expect(usage.reasoning).toBe(idsOf(['<think>', '\nI sh', 'ould.', '\n</think>']).length)
    expect(tokens?.promptIds).toEqual(first)
    expect(tokens?.ids).toEqual(sampled)
    talk.messages.push(result(message))
    await talk.ask({ tools })
    // The end of the reply was sampled, so it is not written twice.
    expect(talk.added(first, sampled)).toBe(
      '\n<|im_start|>user\n<tool_response>\nfound\n</tool_response><|im_end|>\n<|im_start|>assistant\n',
    )
  })

  test('ends a reply that a limit cut off, in the prompt and not in the sample', async () => {
    const cut = ['<think>\nI sh', 'ould t']
    await using talk = new Conversation(new ScriptedEngine([{ pieces: cut, finishReason: 'length' }]))
    const { message, finishReason, tokens } = await talk.ask()
    expect(message).toEqual({ role: 'assistant', content: '', reasoning_content: 'I should t' })
    expect(finishReason).toBe('length')
    expect(tokens?.ids).toEqual(idsOf(cut))
    const first = talk.engine.promptIds
    talk.messages.push({ role: 'user', content: 'Go on.' })
    await talk.ask()
    expect(talk.added(first, idsOf(cut))).toBe(
      '<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n',
    )
  })

  test('keeps a token that ends replies in another way, and ends the turn after it', async () => {
    const pieces = ['Fine.<|endoftext|>']
    await using folder = await temporaryFolder()
    await cp(simulatorFolder, folder.path, { recursive: true })
    await writeFile(
      join(folder.path, 'generation_config.json'),
      `{"eos_token_id":[${tokenizer.idOf('<|endoftext|>')}]}`,
    )
    await using talk = new Conversation(new ScriptedEngine([{ pieces }], { folder: folder.path }))
    expect((await talk.ask()).message.content).toBe('Fine.')
    const first = talk.engine.promptIds
    talk.messages.push({ role: 'user', content: 'Go on.' })
    await talk.ask()
    expect(talk.added(first, idsOf(pieces))).toMatch(/^<\|im_end\|>\n<\|im_start\|>user/)
  })

  test('goes on from ids that were read back from disk', async () => {
    await using talk = new Conversation(new ScriptedEngine([calling]))
    const { message, tokens } = await talk.ask({ tools })
    const [first, sampled] = [talk.engine.promptIds.slice(), idsOf(calling.pieces)]
    await using resumed = new Conversation(new ScriptedEngine([]), [...talk.messages, result(message)])
    if (tokens?.promptIds) {
      const stored = { ...tokens, promptIds: tokens.promptIds.slice() }
      const usage = { calls: 1, input: 0, cachedInput: 0, output: sampled.length, reasoning: 0 }
      resumed.history.note({ messages: talk.messages, length: 1, reply: { message, tokens: stored, usage } })
    }
    await resumed.ask({ tools })
    expect(resumed.added(first, sampled)).toContain('found')
    // With other tools the stored prompt is not the beginning of this conversation.
    await using other = new Conversation(new ScriptedEngine([]), [...talk.messages, result(message)])
    other.history = resumed.history
    await other.ask({ tools: [tool('find')] })
    expect(other.added(first, sampled)).toBeUndefined()
  })

  test('goes on where two turns follow one reply', async () => {
    await using talk = new Conversation(new ScriptedEngine([calling]))
    const { message } = await talk.ask({ tools })
    const first = talk.engine.promptIds
    const { messages, history } = talk
    const prompts: Int32Array[] = []
    for (const content of ['one', 'two', 'one']) {
      talk.messages = [...messages, result(message, content)]
      talk.history = history
      await talk.ask({ tools })
      expect(talk.added(first, idsOf(calling.pieces))).toContain(`\n${content}\n`)
      prompts.push(talk.engine.promptIds)
    }
    expect(prompts[0]).toEqual(prompts[2])
    expect(first).toEqual(talk.engine.requests[0]?.prompt?.ids)
  })

  test('begins a new row if a reply in it was not sampled, or the tools are others', async () => {
    await using talk = new Conversation(new ScriptedEngine([calling]))
    const { message } = await talk.ask({ tools })
    const first = talk.engine.promptIds
    talk.messages.push(
      result(message),
      { role: 'assistant', content: 'My own words.' },
      { role: 'user', content: 'So?' },
    )
    await talk.ask({ tools })
    expect(talk.added(first, idsOf(calling.pieces))).toBeUndefined()
    expect(talk.engine.prompt).toContain('My own words.')

    await using other = new Conversation(new ScriptedEngine([calling]))
    const reply = await other.ask({ tools })
    other.messages.push(result(reply.message))
    await other.ask({ tools: [tool('find')] })
    expect(other.added(first, idsOf(calling.pieces))).toBeUndefined()
    expect(other.engine.prompt).toContain('"find"')
  })

  test('goes on if only a variable of the prompt after it is another', async () => {
    await using folder = await temporaryFolder()
    await cp(simulatorFolder, folder.path, { recursive: true })
    await writeFile(join(folder.path, 'chat_template.jinja'), stripping)
    await using talk = new Conversation(
      new ScriptedEngine([{ pieces: ['Fi', 'ne.<|im_end|>'] }], { folder: folder.path }),
    )
    await talk.ask()
    const first = talk.engine.promptIds
    talk.messages.push({ role: 'user', content: 'Sure?' })
    await talk.ask({ sampling: { extra: { chat_template_kwargs: { enable_thinking: false } } } })
    expect(talk.added(first, idsOf(['Fi', 'ne.<|im_end|>']))).toBe(
      '\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n',
    )
    expect(talk.engine.requests[1]?.sampling).not.toHaveProperty('chat_template_kwargs')
  })

  test('is written with the whole history, if the template looks at it', async () => {
    await using folder = await temporaryFolder()
    await cp(simulatorFolder, folder.path, { recursive: true })
    await writeFile(join(folder.path, 'chat_template.jinja'), numbering)
    const pieces = ['Fi', 'ne.<|im_end|>']
    await using talk = new Conversation(
      new ScriptedEngine(
        Array.from({ length: 4 }, () => ({ pieces })),
        { folder: folder.path },
      ),
    )
    for (const number of [3, 7]) {
      await talk.ask()
      const before = talk.engine.promptIds
      talk.messages.push({ role: 'user', content: 'Sure?' })
      await talk.ask()
      talk.messages.push({ role: 'user', content: 'Really?' })
      const added = talk.added(before, idsOf(pieces))
      expect(added).toBe(`\n<|im_start|>${number}user\nSure?<|im_end|>\n<|im_start|>assistant\n`)
    }
  })

  test('has the ids of a long text, which a thread makes', async () => {
    await using talk = new Conversation(new ScriptedEngine([calling], { contextLength: 100_000 }))
    const { message } = await talk.ask({ tools })
    const first = talk.engine.promptIds
    const long = 'naïve 日本語 <|im_end|> {"a": 1}\n'.repeat(3000)
    talk.messages.push(result(message, long))
    await talk.ask({ tools })
    expect(talk.added(first, idsOf(calling.pieces))).toContain(long)
    const end = `\n<|im_start|>user\n<tool_response>\n${long}\n</tool_response><|im_end|>\n<|im_start|>assistant\n`
    expect(talk.engine.promptIds).toEqual(
      Int32Array.from([...first, ...idsOf(calling.pieces), ...tokenizer.encode(end)]),
    )
  })
})

describe('a reply', () => {
  test.each<{ name: string; pieces: string[]; more?: Partial<ModelRequest>; cut?: boolean; message: object }>([
    {
      name: 'that was stopped is text up to the stop sequence',
      pieces: ['The answer is 7.\nST', 'OP it'],
      more: { sampling: { stop: ['nothing', 'STOP', ''] } },
      message: { content: 'The answer is 7.\n' },
    },
    {
      name: 'that ended by itself keeps what looks like a stop sequence',
      pieces: ['No STOP.<|im_end|>'],
      more: { sampling: { stop: ['STOP'] } },
      message: { content: 'No STOP.' },
    },
    {
      name: 'that was cut off within a call is text',
      pieces: ['<tool_call>\n{"name":"look_up","arguments":{"wor'],
      more: { tools },
      cut: true,
      message: { content: '<tool_call>\n{"name":"look_up","arguments":{"wor' },
    },
    {
      name: 'with a call after one that was complete when it was cut off is a call',
      pieces: ['<tool_call>\n{"name":"look_up","arguments":{"word":"a"}}\n</to'],
      more: { tools },
      cut: true,
      message: { content: null, tool_calls: [{ function: { arguments: '{"word":"a"}' } }] },
    },
    {
      name: 'without tools has no calls',
      pieces: ['<tool_call>\n{"name":"look_up","arguments":{}}\n</tool_call><|im_end|>'],
      message: { content: '<tool_call>\n{"name":"look_up","arguments":{}}\n</tool_call>' },
    },
    {
      name: 'to a request that allows one call has one',
      pieces: [
        'Two.\n<tool_call>\n{"name":"a","arguments":{}}\n</tool_call>\n<tool_call>\n{"name":"b","arguments":{}}\n</tool_call><|im_end|>',
      ],
      more: { tools, parallelToolCalls: false },
      message: { content: 'Two.', tool_calls: [{ function: { name: 'a' } }] },
    },
    {
      name: 'with a marker in its text, spelled in letters, goes on after it',
      pieces: ['a<|im', '_end|>b<|im_end|>'],
      message: { content: 'a<|im_end|>b' },
    },
    {
      name: 'with a call in its reasoning has only the call after it',
      pieces: ['<think>\n<tool_call>\n{"name":"a","arguments":{}}\n</tool_call>\n</think>\n\nDone.<|im_end|>'],
      more: { tools },
      message: { content: 'Done.', reasoning_content: '<tool_call>\n{"name":"a","arguments":{}}\n</tool_call>' },
    },
  ])('$name', async ({ pieces, more, cut = false, message }) => {
    await using talk = new Conversation(new ScriptedEngine([{ pieces, finishReason: cut ? 'length' : 'stop' }]))
    const reply = await talk.ask(more)
    expect(reply.message).toMatchObject(message)
    expect('tool_calls' in reply.message).toBe('tool_calls' in message)
    expect(reply.tokens?.ids).toEqual(idsOf(pieces))
    // The engine does not say how long its prompt was.
    expect(reply.usage.input).toBe(talk.engine.promptIds.length)
  })

  test('begins with reasoning if the prompt has opened it', async () => {
    await using folder = await temporaryFolder()
    await cp(simulatorFolder, folder.path, { recursive: true })
    await writeFile(join(folder.path, 'chat_template.jinja'), opening)
    const samples = [
      { pieces: ['Hm.\n</think>\n\nYes.<|im_end|>'] },
      { pieces: ['Cut of'], finishReason: 'length' as const },
    ]
    await using talk = new Conversation(new ScriptedEngine(samples, { folder: folder.path }))
    expect((await talk.ask()).message).toEqual({ role: 'assistant', content: 'Yes.', reasoning_content: 'Hm.' })
    talk.messages.push({ role: 'user', content: 'Sure?' })
    expect((await talk.ask()).message).toEqual({ role: 'assistant', content: '', reasoning_content: 'Cut of' })
    expect(talk.engine.prompt).toContain('<think>\nHm.\n</think>\n\nYes.<|im_end|>')
  })

  test.each([
    [{ promptIds: Int32Array.of(1, 2) }, /its prompt had other token ids than those it was sent/],
    [{ input: 3 }, /the backend has read 3 tokens, and its prompt had \d+/],
  ])('whose prompt was another one, as the engine says, cannot be used: %j', async (said, message) => {
    await using talk = new Conversation(new ScriptedEngine([{ pieces: ['a'], ...said }]))
    await expect(talk.ask()).rejects.toThrow(message)
  })
})

describe('what cannot be exact is refused', () => {
  const sampling = (extra: JsonObject) => ({ sampling: { extra } })
  test.each<{ name: string; more: Partial<ModelRequest>; code: string; text: string }>([
    { name: 'a forced call', more: { tools, toolChoice: 'required' }, code: 'model_rejected', text: 'tool_choice' },
    {
      name: 'another template',
      more: sampling({ chat_template: 'x' }),
      code: 'model_rejected',
      text: 'sampling.extra.chat_template',
    },
    {
      name: 'a continued message',
      more: sampling({ continue_final_message: true }),
      code: 'model_rejected',
      text: 'continue_final_message',
    },
    {
      name: 'a picture',
      more: { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] }] },
      code: 'model_rejected',
      text: 'image_url',
    },
    {
      name: 'a prompt as long as the context',
      more: { messages: [{ role: 'user', content: 'word '.repeat(5000) }] },
      code: 'context_length',
      text: 'the context of the model has 4096',
    },
  ])('$name', async ({ more, code, text }) => {
    await using talk = new Conversation(new ScriptedEngine([]))
    await expect(talk.ask(more)).rejects.toMatchObject({ code, message: expect.stringContaining(text) as string })
    expect(talk.engine.requests).toEqual([])
  })

  test('a request without a limit, where the context is not known; it may be counted', async () => {
    await using talk = new Conversation(new ScriptedEngine([], { contextLength: undefined }))
    await expect(talk.ask()).rejects.toThrow(/no limit of the reply is given \(maxTokens\)/)
    await talk.ask({ sampling: { maxTokens: 5 } })
    const { signal } = new AbortController()
    const request = {
      tools: [],
      sampling: {},
      messages: talk.messages.slice(0, 1),
      captureTokens: true,
      sessionId: 's',
    }
    expect(await talk.model.countTokens(request, { signal })).toBe(talk.engine.promptIds.length)
  })
})

describe('opening', () => {
  const rateLimited = () => new MillraceError('model_rate_limited', 'busy', { data: { retryAfterMs: 1 } })

  test('waits for a server that is busy', async () => {
    await using talk = new Conversation(new ScriptedEngine([], { failures: [rateLimited(), rateLimited()] }))
    expect((await talk.ask()).message.content).toBe('Fine.')
  })

  test('fails with the reason, which is not remembered', async () => {
    const failures = [new MillraceError('model_auth', 'a wrong key')]
    await using talk = new Conversation(new ScriptedEngine([], { failures }))
    await expect(talk.ask()).rejects.toThrow('a wrong key')
    expect((await talk.ask()).message.content).toBe('Fine.')
  })

  test('compares a backend that did not answer when it does', async () => {
    using clock = new FakeClock('now')
    const failures = [new MillraceError('model_connect', 'it restarts')]
    const late = new ScriptedEngine([], { failures, tokenize: () => Int32Array.of(957, 5) })
    await using talk = new Conversation(new ScriptedEngine([]), undefined, [late])
    expect((await talk.model.tokenStream()).backends).toHaveLength(1)
    expect((await talk.ask()).message.content).toBe('Fine.')
    await clock.pass(10_000)
    await expect(talk.ask()).rejects.toThrow(/is not that of engine/)
  })

  test.each<{ name: string; engine: () => ScriptedEngine; text: RegExp }>([
    {
      name: 'another tokenizer than the server has',
      engine: () => new ScriptedEngine([], { tokenize: () => Int32Array.of(957, 5) }),
      text: /is not that of engine: they differ from token 1 of a probe on .*--tokenizer/,
    },
    {
      name: 'a folder that is not here',
      engine: () => new ScriptedEngine([], { folder: '/nowhere/at/all' }),
      text: /names the folder \/nowhere\/at\/all, which is not on this machine\. Name one with --tokenizer/,
    },
  ])('$name is refused', async ({ engine, text }) => {
    await using talk = new Conversation(engine())
    await expect(talk.ask()).rejects.toThrow(text)
  })

  test('a template that ends replies without a special token is refused', async () => {
    await using folder = await temporaryFolder()
    await cp(simulatorFolder, folder.path, { recursive: true })
    await writeFile(join(folder.path, 'chat_template.jinja'), plain)
    await using talk = new Conversation(new ScriptedEngine([], { folder: folder.path }))
    await expect(talk.ask()).rejects.toThrow(/ends replies with "\\n", which does not begin with a special token/)
  })

  test('a new backend is checked, and the tokenizer is not read again', async () => {
    const [one, other] = [new ScriptedEngine([]), new ScriptedEngine([])] as const
    const unfit = new ScriptedEngine([], { tokenize: () => Int32Array.of(957, 5) })
    await using talk = new Conversation(one)
    const { model } = talk
    const opened = await model.tokenStream()
    await model.changeBackends([one, other])
    const both = await model.tokenStream()
    expect(both.backends).toHaveLength(2)
    expect(both.tokenizer).toBe(opened.tokenizer)
    await model.changeBackends([other])
    expect(await model.tokenStream()).toBe(both)
    await model.changeBackends([other, unfit])
    await expect(model.tokenStream()).rejects.toThrow(/is not that of engine/)
  })

  test('a model is not idle while it writes a prompt', async () => {
    await using talk = new Conversation(new ScriptedEngine([]))
    const asked = talk.ask()
    await Promise.resolve()
    expect(talk.model.isIdle).toBe(false)
    await asked
    expect(talk.model.isIdle).toBe(true)
  })

  test('a server that cannot be asked for its tokenizer is used, and the report says so', async () => {
    await using talk = new Conversation(new ScriptedEngine([], { tokenize: () => undefined }))
    const { backends } = await talk.model.tokenStream()
    expect(backends).toEqual([
      { name: 'engine', path: '/generate', isTokenizerCompared: false, isTemplateCompared: false },
    ])
  })
})
