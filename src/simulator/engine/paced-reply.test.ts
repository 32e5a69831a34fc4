import { describe, expect, test } from 'vitest'
import type { MillraceError } from '../../errors/index.ts'
import { CollectingSink } from '../../../test/support/inference/collecting-sink.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { ask } from '../../../test/support/inference/open-backend.ts'
import type { BackendReply } from '../../apis/backend.ts'
import { apiPaths, body, get, post, postForJson, saidIn, Stream } from '../../../test/support/simulator/ask.ts'
import { SimulatorServer } from '../server/server.ts'
import { Simulator } from './simulator.ts'

const slow = { tokensPerSecond: 10, spread: 0 }
const question = 'What is 17 * 3? End with `Answer: <number>`.'
const apis = ['chat', 'responses', 'messages'] as const

const codeOf = (sent: Promise<BackendReply>) =>
  sent.then(
    () => 'complete',
    (error: unknown) => (error as MillraceError).code,
  )

describe('a paused engine', () => {
  test('in mode keep stops its time and resumes at the same place', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator(slow)
    const sink = new CollectingSink()
    const sent = simulator.send(ask({ sink }))
    await clock.pass(150)
    const before = sink.events.length
    await simulator.engine.pause('keep')
    await clock.pass(60_000)
    expect(sink.events).toHaveLength(before)
    expect(clock.timers).toBe(0)
    simulator.engine.resume()
    await clock.pass(49)
    expect(sink.events).toHaveLength(before)
    await clock.pass(51)
    expect(sink.events.length).toBeGreaterThan(before)
    await clock.pass(60_000)
    expect((await sent).message).toEqual(sink.message)
  })

  test.each(['keep', 'wait', 'abort'] as const)(
    'holds later requests (%s) and answers with the weights at the resume',
    async (mode) => {
      await using simulator = new Simulator({ weightVersion: '1' })
      await simulator.engine.pause(mode)
      const sent = simulator.send(ask({ captureTokens: true }))
      simulator.change({ weightVersion: '2' })
      simulator.engine.resume()
      expect((await sent).tokens?.version).toBe('2')
    },
  )

  test('in mode wait finishes the running replies first', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator(slow)
    const running = simulator.send(ask())
    let hasPaused = false
    const pausing = simulator.engine.pause('wait').then(() => {
      hasPaused = true
    })
    const held = simulator.send(ask())
    await clock.pass(0)
    expect([simulator.engine.isPaused, hasPaused]).toEqual([true, false])
    await clock.pass(60_000)
    await Promise.all([running, pausing])
    expect(clock.timers).toBe(0)
    simulator.engine.resume()
    await clock.pass(60_000)
    await held
  })

  test('in mode abort ends running and held replies', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator(slow)
    const sink = new CollectingSink()
    const ends = [simulator.send(ask({ sink })), simulator.send(ask())].map(codeOf)
    await clock.pass(150)
    await simulator.engine.pause('keep')
    ends.push(codeOf(simulator.send(ask())))
    await simulator.engine.pause('abort')
    expect(await Promise.all(ends)).toEqual(['model_truncated', 'model_truncated', 'model_truncated'])
    expect(clock.timers).toBe(0)
    expect(sink.partials[0]?.message).toEqual(sink.message)
    expect(sink.events.map(({ document }) => JSON.stringify(document)).join('')).toContain('"finish_reason":"abort"')
  })

  test('fails its held requests when the simulator closes', async () => {
    const simulator = new Simulator()
    await simulator.engine.pause('keep')
    const held = codeOf(simulator.send(ask()))
    await simulator.close()
    expect(await held).toBe('closed')
  })
})

describe('over HTTP', () => {
  /** The reason that each API gives for an end, wherever it puts it. */
  const abortIn = {
    chat: { choices: [{ finish_reason: 'abort' }] },
    responses: { status: 'incomplete', incomplete_details: { reason: 'abort' } },
    messages: { stop_reason: 'abort' },
  }

  test.each(apis)('%s: aborted replies end in order with their partial output', async (api) => {
    // The first token comes at once, and the second later than any test takes.
    await using server = await SimulatorServer.start({ tokensPerSecond: 0.01 })
    const path = apiPaths[api]
    const stream = await Stream.open(server, path, body(api, question))
    const whole = postForJson(server, path, body(api, question, { seed: 1 }))
    await stream.until((events) => saidIn(events) !== '')
    await expect.poll(() => server.stats.inFlight).toBe(2)
    expect(await post(server, '/pause?mode=abort')).toMatchObject({ status: 200 })
    expect(await get(server, '/is_paused')).toEqual({ is_paused: true })
    const { end, events, text } = await stream.rest()
    expect(end).toBe('end')
    expect(saidIn(events)).toBe('Answer')
    expect(text).toContain('"abort"')
    expect(await whole).toMatchObject(abortIn[api])
  })

  test('SGLang pauses under its own endpoint names', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang', weightVersion: '1' })
    await post(server, '/pause_generation', { mode: 'retract' })
    const held = postForJson(server, apiPaths.chat, body('chat', question))
    await expect.poll(() => server.stats.inFlight).toBe(1)
    await post(server, '/update_weight_version', { new_version: '2', abort_all_requests: false })
    await post(server, '/continue_generation')
    expect(await held).toMatchObject({ metadata: { weight_version: '2' }, choices: [{ finish_reason: 'stop' }] })
  })

  test('a request is aborted by its own id or by the id of its reply', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang' })
    await post(server, '/pause_generation', { mode: 'in_place' })
    const named = postForJson(server, '/generate', { text: question, rid: 'mine' })
    const other = postForJson(server, '/generate', { text: question })
    await expect.poll(() => server.stats.inFlight).toBe(2)
    await post(server, '/abort_request', { rid: 'mine' })
    expect(await named).toMatchObject({
      text: '',
      output_ids: [],
      meta_info: { id: 'mine', finish_reason: { type: 'abort' } },
    })
    await post(server, '/continue_generation')
    expect(await other).toMatchObject({ meta_info: { finish_reason: { type: 'stop' } } })
    expect(await post(server, '/abort_request', {})).toMatchObject({ status: 400 })
  })

  test('vLLM aborts the named requests, or all', async () => {
    await using server = await SimulatorServer.start()
    await post(server, '/pause?mode=keep')
    const sent = ['a', 'b', 'c'].map((name) =>
      postForJson(server, apiPaths.chat, body('chat', name, { request_id: name })),
    )
    await expect.poll(() => server.stats.inFlight).toBe(3)
    const abort = (names: string[]) => postForJson(server, '/abort_requests', { request_ids: names })
    expect(await abort(['a', 'unknown'])).toEqual({ status: 'aborted', aborted: 1 })
    expect(await sent[0]).toMatchObject({ choices: [{ finish_reason: 'abort', message: { content: '' } }] })
    expect(await abort([])).toEqual({ status: 'aborted', aborted: 2 })
    await Promise.all(sent)
    expect(await post(server, '/pause?mode=never')).toMatchObject({ status: 400 })
  })

  test('a sleeping vLLM holds its requests until it wakes up', async () => {
    await using server = await SimulatorServer.start()
    await post(server, '/sleep')
    expect(await get(server, '/is_sleeping')).toEqual({ is_sleeping: true })
    const held = postForJson(server, apiPaths.chat, body('chat', question))
    await expect.poll(() => server.stats.inFlight).toBe(1)
    await post(server, '/resume')
    expect(server.stats.inFlight).toBe(1)
    await post(server, '/wake_up')
    expect(await held).toMatchObject({ choices: [{ finish_reason: 'stop' }] })
  })

  test('weights from disk set the version of SGLang', async () => {
    await using server = await SimulatorServer.start({ imitate: 'sglang', weightVersion: '1' })
    const update = { model_path: '/weights', weight_version: '2' }
    expect(await postForJson(server, '/update_weights_from_disk', update)).toMatchObject({ success: true })
    expect(server.simulator.weightVersion).toBe('2')
  })

  test('routes that control the engine can be missing, or fail', async () => {
    await using server = await SimulatorServer.start({ engineControls: false })
    expect((await post(server, '/pause')).status).toBe(404)
    server.simulator.change({ engineControls: true, failingControls: '/resume' })
    expect((await post(server, '/pause')).status).toBe(200)
    expect((await post(server, '/resume')).status).toBe(500)
  })

  test('a client that disconnects while its request is held is forgotten', async () => {
    await using server = await SimulatorServer.start()
    await post(server, '/pause?mode=keep')
    const gone = Stream.open(server, apiPaths.chat, body('chat', question))
    gone.catch(() => {})
    await expect.poll(() => server.stats.inFlight).toBe(1)
    const waiting = post(server, '/pause?mode=wait')
    expect(await waiting).toMatchObject({ status: 200 })
    await server.close()
    await expect(gone).rejects.toThrow()
    expect(server.simulator.engine.abort()).toBe(0)
  })
})
