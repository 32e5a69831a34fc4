import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import { PuppetWorker } from '../../test/support/worker/puppet-worker.ts'

const scores = (value: number) => ({ 'a-0': { total: { score: value, weight: 1 } } })

describe('an abandoned worker', () => {
  test('is ignored: its late answer changes nothing', async () => {
    await using puppet = new PuppetWorker()
    const lost = puppet.run('a-0')
    puppet.worker.tick(2_000)
    expect(puppet.worker.status().state).toBe('silent')
    puppet.worker.tick(28_000)
    expect(puppet.isKilled).toBe(true)
    expect(puppet.deaths).toMatchObject([{ calls: ['a-0'], isBlameless: false }])
    // Stopped by a signal and continued now, it would go on as if nothing had happened.
    puppet.say({ kind: 'done', call: 1, value: scores(1) })
    puppet.say({ kind: 'ready' })
    await expect(lost).rejects.toBe(puppet.worker.death)
    await expect(lost).rejects.toThrow(/blocked for 30000 ms/)
    expect(puppet.worker.takesWork).toBe(false)
    puppet.exit('it was ended by SIGKILL')
    await puppet.worker.close()
    expect(puppet.deaths).toHaveLength(1)
    await expect(puppet.run('b-0')).rejects.toBe(puppet.worker.death)
  })

  test('keeps the answers it sent before its end', async () => {
    await using puppet = new PuppetWorker()
    const [answered, lost] = [puppet.run('a-0'), puppet.run('b-0')]
    puppet.say({ kind: 'done', call: 1, value: scores(1) })
    puppet.say({ kind: 'crash-report', call: 2, error: { message: 'oh', place: '/environment.ts:9' } })
    puppet.exit('it exited with code 1')
    expect(await answered).toEqual(scores(1))
    await expect(lost).rejects.toThrow(/oh \(at \/environment\.ts:9\)/)
    expect(puppet.deaths).toMatchObject([{ calls: ['b-0'], culprit: 'b-0' }])
  })
})

test('a silent worker takes no work until its next message', async () => {
  await using puppet = new PuppetWorker()
  expect(puppet.worker.takesWork).toBe(true)
  puppet.worker.tick(1_999)
  expect(puppet.worker.takesWork).toBe(true)
  puppet.worker.tick(1)
  expect(puppet.worker.takesWork).toBe(false)
  puppet.say({ kind: 'unhandled-error', error: { message: 'still here' } })
  expect(puppet.worker.status().state).toBe('ready')
})

test('a cancelled call sends the reason to the worker, which answers it', async () => {
  await using puppet = new PuppetWorker()
  const controller = new AbortController()
  const run = puppet.run('a-0', controller.signal)
  controller.abort(new MillraceError('cancelled', 'enough'))
  expect(puppet.received.at(-1)).toEqual({ kind: 'abort', call: 1, reason: { code: 'cancelled', message: 'enough' } })
  puppet.say({ kind: 'done', call: 1, value: scores(0) })
  expect(await run).toEqual(scores(0))
  expect(puppet.worker.load).toBe(0)
  expect(puppet.worker.worksOn(3)).toBe(false)
})

test('a call whose caller aborted before it is sent is ended as well', async () => {
  await using puppet = new PuppetWorker()
  const run = puppet.run('a-0', AbortSignal.abort(new MillraceError('cancelled', 'enough')))
  expect(puppet.received.map(({ kind }) => kind)).toEqual(['run', 'abort'])
  puppet.say({ kind: 'done', call: 1, value: scores(0) })
  expect(await run).toEqual(scores(0))
})

test('an answered call leaves no listener, and is not ended afterwards', async () => {
  await using puppet = new PuppetWorker()
  const controller = new AbortController()
  const first = puppet.run('a-0', controller.signal)
  const second = puppet.run('b-0', controller.signal)
  puppet.say({ kind: 'done', call: 1, value: scores(0) })
  await first
  expect(getEventListeners(controller.signal, 'abort')).toHaveLength(1)
  controller.abort(new MillraceError('cancelled', 'enough'))
  expect(puppet.received.filter(({ kind }) => kind === 'abort')).toMatchObject([{ call: 2 }])
  puppet.say({ kind: 'done', call: 2, value: scores(0) })
  await second
})

describe('an abandoned call', () => {
  /** The worker is silent, so that nobody waits for it to listen. */
  async function abandoned(puppet: PuppetWorker, id: string): Promise<void> {
    const controller = new AbortController()
    const run = puppet.run(id, controller.signal)
    puppet.worker.tick(2_000)
    controller.abort(new MillraceError('cancelled', 'enough'))
    await expect(run).rejects.toThrow(/enough/)
  }

  test('does not count as load, but is a suspect of a death', async () => {
    await using puppet = new PuppetWorker()
    await abandoned(puppet, 'a-0')
    expect(puppet.worker.load).toBe(0)
    expect(puppet.worker.worksOn(3)).toBe(false)
    const innocent = puppet.run('b-0')
    puppet.say({ kind: 'crash-report', call: 1, error: { message: 'oh' } })
    puppet.exit('it exited with code 1')
    await expect(innocent).rejects.toThrow(/oh/)
    expect(puppet.deaths).toMatchObject([{ calls: ['b-0'], abandoned: ['a-0'], culprit: 'a-0' }])
  })

  test('is not a suspect once the worker has ended it', async () => {
    await using puppet = new PuppetWorker()
    await abandoned(puppet, 'a-0')
    puppet.say({ kind: 'done', call: 1, value: scores(0) })
    puppet.exit('it exited with code 1')
    await expect.poll(() => puppet.deaths).toMatchObject([{ calls: [], abandoned: [] }])
  })
})

test('a closing worker takes no call', async () => {
  await using puppet = new PuppetWorker()
  puppet.exit('it exited with code 0')
  const closed = puppet.worker.close()
  await expect(puppet.run('a-0')).rejects.toMatchObject({ code: 'closed' })
  await closed
})
