import { describe, expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import type { MessageNode } from '../schema/index.ts'
import type { ModelRequest } from '../apis/backend.ts'
import type { ModelClient, ModelReply } from './model-client.ts'
import { type Recorder, Session } from './session.ts'
import { WeightVersions } from './weight-versions.ts'

class Echo implements ModelClient {
  readonly price = undefined
  readonly name = 'echo'
  readonly versions = new WeightVersions()
  readonly asked: ModelRequest[] = []

  async call(request: ModelRequest): Promise<ModelReply> {
    this.asked.push({ ...request, messages: [...request.messages] })
    return {
      status: 'complete',
      message: { role: 'assistant', content: `reply ${request.messages.length}` },
      finishReason: 'stop',
      usage: { calls: 1, input: 1, cachedInput: 0, output: 2, reasoning: 0 },
      cost: 0.5,
      model: 'echo',
      backend: 'here',
      tries: 1,
      ms: 10,
      waitMs: 0,
    }
  }

  async countTokens(): Promise<number> {
    return 1
  }

  endSession(): void {}

  status() {
    return { name: 'echo', limit: 1, inFlight: 0, waiting: 0, parked: 0, calls: 0, tries: 0 }
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

class Notebook implements Recorder {
  readonly nodes: MessageNode[] = []
  pending: PromiseWithResolvers<void> | undefined

  node(node: MessageNode): void {
    this.nodes.push(node)
  }

  version(): void {}

  synced(): Promise<void> | undefined {
    return this.pending?.promise
  }
}

const request = { tools: [], sampling: {}, captureTokens: false }
const hooks = { signal: new AbortController().signal }

async function converse(session: Session): Promise<void> {
  session.append({ role: 'user', content: 'hello' })
  await session.turn(request, hooks)
  session.append({ role: 'user', content: 'and?' })
  await session.turn(request, hooks)
}

describe('Session', () => {
  test('records how each reply was sampled', async () => {
    const recorder = new Notebook()
    const session = new Session({ id: '0-0', model: new Echo(), recorder })
    session.append({ role: 'user', content: 'hello' })
    const sampling = { temperature: 0.7, seed: 3, extra: { top_k: 20 } }
    const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }] as const
    await session.turn({ ...request, sampling, tools, toolChoice: 'required' }, hooks)
    expect(recorder.nodes.map(({ call }) => call?.sampling)).toEqual([
      undefined,
      { temperature: 0.7, seed: 3, topK: 20, toolChoice: 'required', constrainedBy: ['tool_choice'] },
    ])
  })

  test('records every message as a node after the previous one', async () => {
    const recorder = new Notebook()
    await converse(new Session({ id: '0-0', model: new Echo(), recorder }))
    expect(recorder.nodes.map(({ seq, parent, sampled }) => [seq, parent, sampled])).toEqual([
      [0, null, false],
      [1, 0, true],
      [2, 1, false],
      [3, 2, true],
    ])
    expect(new Set(recorder.nodes.map(({ hash }) => hash)).size).toBe(4)
    expect(recorder.nodes[1]?.call).toMatchObject({ model: 'echo', tries: 1, cost: 0.5 })
  })

  test.each([
    ['a second turn', 1, false],
    ['a child’s first turn', 0, true],
  ])('%s is not requested until the earlier nodes are durable', async (_, turnsBefore, isChild) => {
    const recorder = new Notebook()
    const model = new Echo()
    const session = new Session({ id: '0-0', model, recorder, isChild })
    session.append({ role: 'user', content: 'hello' })
    if (turnsBefore > 0) await session.turn(request, hooks)
    recorder.pending = Promise.withResolvers()
    const turn = session.turn(request, hooks)
    await new Promise((resolve) => setImmediate(resolve))
    expect(model.asked).toHaveLength(turnsBefore)
    recorder.pending.resolve()
    await turn
    expect(model.asked).toHaveLength(turnsBefore + 1)
  })

  test('a resumed session answers from the journal, records nothing twice, then continues live', async () => {
    const first = new Notebook()
    await converse(new Session({ id: '0-0', model: new Echo(), recorder: first }))
    for (let kept = 0; kept <= 4; kept += 1) {
      const recorder = new Notebook()
      const model = new Echo()
      const journalled = first.nodes.slice(0, kept)
      const session = new Session({
        id: '0-0',
        model,
        recorder,
        recorded: { nodes: journalled, journalled: journalled.length },
      })
      await converse(session)
      expect(session.messages).toEqual(first.nodes.map(({ message }) => message))
      expect(recorder.nodes.map(({ hash }) => hash)).toEqual(first.nodes.slice(kept).map(({ hash }) => hash))
      expect(model.asked).toHaveLength(2 - Math.floor(kept / 2))
    }
  })

  test('an agent that sends another message than its journal has diverged', async () => {
    const first = new Notebook()
    await converse(new Session({ id: '0-0', model: new Echo(), recorder: first }))
    const session = new Session({
      id: '0-0',
      model: new Echo(),
      recorder: new Notebook(),
      recorded: { nodes: first.nodes, journalled: first.nodes.length },
    })
    expect(() => session.append({ role: 'user', content: 'good morning' })).toThrow(
      expect.objectContaining({ code: 'replay_diverged' }),
    )
  })

  test('a turn with another node in the journal has diverged', async () => {
    const first = new Notebook()
    await converse(new Session({ id: '0-0', model: new Echo(), recorder: first }))
    const session = new Session({
      id: '0-0',
      model: new Echo(),
      recorder: new Notebook(),
      recorded: { nodes: first.nodes, journalled: first.nodes.length },
    })
    await expect(session.turn(request, hooks)).rejects.toMatchObject({ code: 'replay_diverged' })
  })

  test('an incomplete reply is thrown and leaves no node', async () => {
    const recorder = new Notebook()
    const model = new Echo()
    const error = new MillraceError('model_truncated', 'cut')
    model.call = async () => ({
      status: 'truncated',
      error,
      model: 'echo',
      backend: 'here',
      tries: 6,
      ms: 1,
      waitMs: 1,
    })
    const session = new Session({ id: '0-0', model, recorder })
    session.append({ role: 'user', content: 'hello' })
    await expect(session.turn(request, hooks)).rejects.toBe(error)
    expect(recorder.nodes).toHaveLength(1)
  })
})
