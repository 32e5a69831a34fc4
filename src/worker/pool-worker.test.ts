import { MessageChannel } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import type { RolloutJob } from '../rollout/index.ts'
import { PoolWorker, type WorkerDeath } from './pool-worker.ts'
import { defaultSupervision } from './supervision.ts'
import type { ChannelOptions, WorkerChannel } from './worker-channel.ts'
import type { ToWorker } from './worker-messages.ts'

/** A worker whose other end is in the test's hands. */
class Puppet {
  readonly heard: ToWorker[] = []
  readonly deaths: WorkerDeath[] = []
  readonly worker: PoolWorker
  readonly #exit = Promise.withResolvers<string>()
  #say: ChannelOptions['onMessage'] = () => {}
  isKilled = false

  constructor() {
    const { port1 } = new MessageChannel()
    port1.close()
    this.worker = new PoolWorker({
      id: 1,
      restarts: 0,
      start: { specifier: '', options: {}, settings: {} as never, models: [], workers: 1 },
      journal: port1,
      supervision: { ...defaultSupervision, silentAfterMs: 2_000, replaceAfterMs: 30_000 },
      limits: {} as never,
      onBlocked: () => {},
      onMetrics: () => {},
      onChange: () => {},
      onDeath: (_, death) => void this.deaths.push(death),
      open: (options): WorkerChannel => {
        this.#say = options.onMessage
        return {
          kind: 'thread',
          target: {} as never,
          exited: this.#exit.promise,
          post: (message) => void this.heard.push(message),
          kill: () => (this.isKilled = true),
        }
      },
    })
    this.say({ kind: 'ready' })
  }

  say(message: Parameters<ChannelOptions['onMessage']>[0]): void {
    this.#say(message)
  }

  exit(how: string): void {
    this.#exit.resolve(how)
  }

  run(id: string, signal: AbortSignal = new AbortController().signal): Promise<unknown> {
    return this.worker.ask({ kind: 'run', job: { id } as RolloutJob }, { key: id, task: 3, signal })
  }
}

const scores = (value: number) => ({ 'a-0': { total: { score: value, weight: 1 } } })

describe('a worker that was given up', () => {
  test('is not heard any more: its late answer changes nothing', async () => {
    const puppet = new Puppet()
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

  test('has answered what it had answered', async () => {
    const puppet = new Puppet()
    const [answered, lost] = [puppet.run('a-0'), puppet.run('b-0')]
    puppet.say({ kind: 'done', call: 1, value: scores(1) })
    puppet.say({ kind: 'last-words', call: 2, error: { message: 'oh', place: '/environment.ts:9' } })
    puppet.exit('it exited with code 1')
    expect(await answered).toEqual(scores(1))
    await expect(lost).rejects.toThrow(/oh \(at \/environment\.ts:9\)/)
    expect(puppet.deaths).toMatchObject([{ calls: ['b-0'], culprit: 'b-0' }])
  })
})

test('a silent worker takes no work until it is heard of again', () => {
  const puppet = new Puppet()
  expect(puppet.worker.takesWork).toBe(true)
  puppet.worker.tick(1_999)
  expect(puppet.worker.takesWork).toBe(true)
  puppet.worker.tick(1)
  expect(puppet.worker.takesWork).toBe(false)
  puppet.say({ kind: 'stray-error', error: { message: 'still here' } })
  expect(puppet.worker.status().state).toBe('ready')
})

test('a call that is cancelled tells the worker why, and is answered by it', async () => {
  const puppet = new Puppet()
  const controller = new AbortController()
  const run = puppet.run('a-0', controller.signal)
  controller.abort(new MillraceError('cancelled', 'enough'))
  expect(puppet.heard.at(-1)).toEqual({ kind: 'abort', call: 1, reason: { code: 'cancelled', message: 'enough' } })
  puppet.say({ kind: 'done', call: 1, value: scores(0) })
  expect(await run).toEqual(scores(0))
  expect(puppet.worker.load).toBe(0)
  expect(puppet.worker.worksOn(3)).toBe(false)
})
