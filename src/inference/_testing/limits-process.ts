import { once } from 'node:events'
import { connect } from 'node:net'
import { failure, FakeBackend } from './fake-backend.ts'
import type { GrantMessage, LeaseMessage } from '../limits/lease-messages.ts'
import { modelConfigSchema } from '../model-config.ts'
import { Model } from '../model.ts'
import { openLimits, type LimitsHandle, type WorkerLimits } from '../limits/worker-limits.ts'

export type ToLimitsProcess =
  | { readonly kind: 'start'; readonly limits: LimitsHandle; readonly port: number }
  | { readonly kind: 'limits'; readonly message: GrantMessage }
  /** So many clients, each of which visits the test's server so many times with a permit; answers the visits. */
  | { readonly kind: 'visit'; readonly clients: number; readonly times: number }
  /** Calls the model so often at once, with a backend that is down. */
  | { readonly kind: 'call'; readonly calls: number }

export type FromLimitsProcess =
  | { readonly kind: 'limits'; readonly message: LeaseMessage }
  | { readonly kind: 'done'; readonly answer: number }

const send = (message: FromLimitsProcess): void => void process.send?.(message)
let limits: WorkerLimits | undefined
let port = 0
const backend = new FakeBackend('b', () => failure('model_overloaded'), 1)

process.on('message', (message: ToLimitsProcess) => {
  if (message.kind === 'start') {
    port = message.port
    limits = openLimits(message.limits, (lease) => send({ kind: 'limits', message: lease }))
  } else if (message.kind === 'limits') limits?.receive(message.message)
  else if (message.kind === 'visit') answer(visit(message.clients, message.times))
  else answer(call(message.calls))
})

function answer(work: Promise<number>): void {
  void work.then((value) => send({ kind: 'done', answer: value }))
}

async function visit(clients: number, times: number): Promise<number> {
  const permits = limits?.model('m').permits
  if (!permits) return 0
  let visits = 0
  const client = async (): Promise<void> => {
    for (let time = 0; time < times; time += 1) {
      if (!permits.tryAcquire()) await permits.acquire()
      const socket = connect(port, '127.0.0.1')
      await once(socket.resume(), 'close')
      permits.release()
      visits += 1
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  return visits
}

async function call(calls: number): Promise<number> {
  if (!limits) return 0
  const config = modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://localhost/v1' }] })
  await using model = new Model(config, [backend], { limits: limits.model('m') })
  const { signal } = new AbortController()
  const request = { messages: [], tools: [], sampling: {}, captureTokens: false, sessionId: 's' }
  await Promise.all(Array.from({ length: calls }, () => model.call(request, { signal })))
  return backend.requests.length
}
