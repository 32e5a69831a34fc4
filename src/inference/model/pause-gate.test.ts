import { describe, expect, test } from 'vitest'
import { FakeBackend, goodReply } from '../../../test/support/inference/fake-backend.ts'
import { plainRequest as ask } from '../../../test/support/inference/plain-request.ts'
import { type BackendReply, type BackendRequest, type ModelRequest, TokenPrompt } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { modelConfigSchema, type ModelConfigInput } from '../config.ts'
import type { CallHooks, ModelReply } from '../model-client.ts'
import { Model } from './model.ts'
import { PauseGate } from './pause-gate.ts'

const forever = new AbortController().signal

/** Backends whose calls end when the test says, and a model over them. */
class Paused {
  readonly gates: readonly PauseGate[]
  readonly backends: readonly FakeBackend[]
  readonly model: Model
  readonly begun: BackendRequest[] = []
  latencyMs = 0
  readonly answers: BackendReply[] = []

  constructor(count = 1, config: Partial<ModelConfigInput> = {}) {
    this.gates = Array.from({ length: count }, () => new PauseGate())
    this.backends = this.gates.map(
      (_gate, index) =>
        new FakeBackend(
          `b${index}`,
          () => this.answers.shift() ?? goodReply,
          (request) => {
            this.begun.push(request)
            return this.latencyMs
          },
        ),
    )
    this.model = new Model(modelConfigSchema.parse({ name: 'm', maxTries: 1, ...config }), this.backends, {
      gateOf: (backend) => this.gates[this.backends.indexOf(backend as FakeBackend)] ?? new PauseGate(),
    })
  }

  get gate(): PauseGate {
    return this.gates[0] as PauseGate
  }

  call(request: Partial<ModelRequest> = {}, hooks: Partial<CallHooks> = {}): Promise<ModelReply> {
    return this.model.call({ ...ask, ...request }, { signal: forever, ...hooks })
  }
}

describe('a paused backend', () => {
  test('gets no calls; its sessions go elsewhere, and come back after the pause', async () => {
    const paused = new Paused(2)
    const { model, gates } = paused
    const call = (request: Partial<ModelRequest>): Promise<ModelReply> => paused.call(request)
    const home = (await call({ sessionId: 's' })).backend
    const gate = gates[Number(home.slice(1))] as PauseGate
    gate.pause()
    for (let turn = 0; turn < 3; turn += 1) expect((await call({ sessionId: 's' })).backend).not.toBe(home)
    gate.resume()
    expect((await call({ sessionId: 's' })).backend).toBe(home)
    expect(model.isIdle).toBe(true)
  })

  test('holds its calls, as waits, if there is no other', async () => {
    const paused = new Paused()
    paused.gate.pause()
    const waits: string[] = []
    const hooks = { onWaitStart: () => void waits.push('start'), onWaitEnd: () => void waits.push('end') }
    const calls = [paused.call({}, hooks), paused.call()]
    await expect.poll(() => paused.model.status()).toMatchObject({ waiting: 2, inFlight: 0, isShut: true })
    expect([waits, paused.begun.length]).toEqual([['start'], 0])
    paused.gate.resume()
    expect(await Promise.all(calls)).toMatchObject([{ status: 'complete' }, { status: 'complete' }])
    expect(waits).toEqual(['start', 'end'])
  })

  test('fails its calls after maxPauseWaitMs, or at once if it is to refuse them', async () => {
    const waiting = new Paused(1, { maxPauseWaitMs: 10 })
    waiting.gate.pause()
    const data = { retryAfterMs: 1000 }
    expect(await waiting.call()).toMatchObject({
      status: 'failed',
      error: { code: 'model_overloaded', data: { ...data, status: 503 } },
    })
    const refusing = new Paused(1, { whenPaused: 'refuse' })
    refusing.gate.pause()
    expect(await refusing.call()).toMatchObject({ tries: 0, error: { data: { ...data, status: 429 } } })
    expect(waiting.model.isIdle && refusing.model.isIdle).toBe(true)
  })

  test('lets go of a call whose caller leaves, or whose model closes', async () => {
    const paused = new Paused()
    paused.gate.pause()
    const leaving = new AbortController()
    const left = paused.call({}, { signal: leaving.signal })
    const other = paused.call()
    leaving.abort(new MillraceError('cancelled', 'left'))
    expect(await left).toMatchObject({ status: 'aborted' })
    await paused.model.close()
    expect(await other).toMatchObject({ error: { code: 'closed' } })
  })

  test('takes its calls again when a backend that is not paused is added', async () => {
    const paused = new Paused()
    paused.gate.pause()
    const call = paused.call()
    const added = new FakeBackend('added', () => goodReply)
    await paused.model.changeBackends([...paused.backends, added])
    expect(await call).toMatchObject({ backend: 'added' })
  })
})

describe('replies in the making', () => {
  test('end before the pause is complete', async () => {
    const paused = new Paused()
    paused.latencyMs = 20
    const call = paused.call()
    await expect.poll(() => paused.gate.running).toBe(1)
    paused.gate.pause()
    await paused.gate.idle(forever)
    expect(paused.gate.running).toBe(0)
    expect(await call).toMatchObject({ status: 'complete', tries: 1 })
  })

  test('are aborted and sent again afterwards, which counts as no try', async () => {
    const paused = new Paused()
    paused.latencyMs = 60_000
    const call = paused.call()
    for (let update = 0; update < 3; update += 1) {
      await expect.poll(() => paused.gate.running).toBe(1)
      paused.gate.pause()
      paused.gate.abortAll()
      await paused.gate.idle(forever)
      if (update === 2) paused.latencyMs = 0
      paused.gate.resume()
    }
    expect(await call).toMatchObject({ status: 'complete', tries: 4 })
  })

  test('are not sent again once something was passed on', async () => {
    const gate = new PauseGate()
    const model = new Model(modelConfigSchema.parse({ name: 'm' }), [new Begun()], { gateOf: () => gate })
    const begun = Promise.withResolvers<void>()
    const onEvents = (): boolean => {
      begun.resolve()
      return true
    }
    const call = model.call({ ...ask, sink: { onEvents } }, { signal: forever })
    await begun.promise
    gate.pause()
    gate.abortAll()
    expect(await call).toMatchObject({ status: 'truncated', tries: 1, error: { retryable: true } })
  })

  test('go on from their partial tokens, with what is left of their limit', async () => {
    const paused = new Paused()
    const prompt = TokenPrompt.of(Int32Array.of(1, 2))
    paused.answers.push(
      part([3, 4], '7', { isAborted: true }),
      part([], '7', { isAborted: true }),
      part([5], '8', { finishReason: 'length' }),
    )
    paused.latencyMs = 5
    const call = paused.call({ prompt, captureTokens: true, sampling: { maxTokens: 3 } })
    for (let update = 0; update < 2; update += 1) {
      await expect.poll(() => paused.begun.length).toBe(update + 1)
      paused.gate.pause()
      expect(paused.gate.canContinue).toBe(true)
      paused.gate.expectAborts()
      await paused.gate.idle(forever)
      paused.gate.resume()
    }
    const reply = await call
    expect(reply).toMatchObject({
      status: 'complete',
      finishReason: 'length',
      usage: { input: 10, output: 3 },
      tokens: {
        ids: Int32Array.of(3, 4, 5),
        logprobs: Float32Array.of(-1, -1, -1),
        version: '7',
        versionSpans: [
          { from: 0, version: '7' },
          { from: 2, version: '8' },
        ],
      },
    })
    expect(reply).not.toHaveProperty('isAborted')
    const sent = paused.begun.map(({ prompt: ids, sampling }) => [Array.from(ids?.ids ?? []), sampling.maxTokens])
    expect(sent).toEqual([
      [[1, 2], 3],
      [[1, 2, 3, 4], 1],
      [[1, 2, 3, 4], 1],
    ])
  })

  test('have no version if that of a part is not known', async () => {
    const paused = new Paused(1, { maxTries: 2 })
    paused.answers.push(part([3], undefined, { isAborted: true }), part([4], '8'))
    const reply = await paused.call({ prompt: TokenPrompt.of(Int32Array.of(1)), captureTokens: true })
    expect(reply).toMatchObject({ status: 'complete', tokens: { ids: Int32Array.of(3, 4) } })
    expect((reply as BackendReply).tokens).not.toHaveProperty('version')
  })

  test.each<[string, Partial<ModelRequest>]>([
    ['a grammar', { responseFormat: { kind: 'json_object' } }],
    ['a penalty', { sampling: { extra: { presence_penalty: 1 } } }],
  ])('cannot go on with %s', async (_name, request) => {
    const paused = new Paused()
    paused.latencyMs = 10
    const call = paused.call({ prompt: TokenPrompt.of(Int32Array.of(1)), ...request })
    await expect.poll(() => paused.gate.running).toBe(1)
    expect(paused.gate.canContinue).toBe(false)
    await call
  })
})

describe('the version that was set', () => {
  const tokens = { ids: Int32Array.of(1), logprobs: Float32Array.of(-1) }

  test('is that of a reply if it was the same before and after it', async () => {
    const paused = new Paused()
    paused.answers.push({ ...goodReply, tokens }, { ...goodReply, tokens }, { ...goodReply, tokens })
    const version = async (): Promise<string | undefined> => ((await paused.call()) as BackendReply).tokens?.version
    expect(await version()).toBeUndefined()
    paused.gate.version = { version: '3' }
    expect(await version()).toBe('3')
    expect(paused.model.versions.newest).toBe('3')
    paused.latencyMs = 20
    const spanning = version()
    await expect.poll(() => paused.gate.running).toBe(1)
    paused.gate.version = { version: '3' }
    expect(await spanning).toBeUndefined()
  })

  test('does not replace what the backend says', async () => {
    const paused = new Paused()
    paused.gate.version = { version: '3' }
    paused.answers.push({ ...goodReply, tokens: { ...tokens, version: '2' } })
    expect(await paused.call()).toMatchObject({ tokens: { version: '2' } })
  })
})

/** A backend that begins its reply and does not end it. */
class Begun extends FakeBackend {
  constructor() {
    super('begun', () => goodReply, 60_000)
  }

  override async send(request: BackendRequest): Promise<BackendReply> {
    const said = { data: '{}', document: {}, deltas: [], isEnd: false }
    request.sink?.onEvents([said], () => undefined)
    return await super.send(request)
  }
}

function part(ids: readonly number[], version: string | undefined, more: Partial<BackendReply> = {}): BackendReply {
  const logprobs = Float32Array.from(ids, () => -1)
  const tokens = { ids: Int32Array.from(ids), logprobs, ...(version !== undefined && { version }) }
  return { ...goodReply, usage: { ...goodReply.usage, output: ids.length }, tokens, ...more }
}
