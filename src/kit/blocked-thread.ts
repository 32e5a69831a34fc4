import { Session } from 'node:inspector'
import type { Worker } from 'node:worker_threads'
import { pauseOnce, type DebuggerMessage } from './_debugger-pause.ts'
import { frameName } from './_stack-frame.ts'
import { AbortScope } from './abort-scope.ts'
import { raced } from './raced.ts'

/** A thread that can be stopped at all answers within some 50 ms; one inside of a native call may never. */
const maxWaitMs = 1_000

/**
 * What a thread of this one is stuck in: `name (file:line)` of the innermost frame in the user's code, else in a package,
 * else in ours. undefined where it cannot be told within a second, as inside of a native call, and where the thread is
 * not stuck. Never throws, opens no port, and leaves the thread as it was.
 */
export async function nameBlockedThread(worker: Worker, signal: AbortSignal): Promise<string | undefined> {
  return await attempt(signal, async (session, scope) => {
    session.connect()
    const sessionId = await attach(session, worker, scope)
    if (sessionId === undefined) return undefined
    let requests = 0
    const send = (method: string): void => {
      const message = JSON.stringify({ id: (requests += 1), method })
      session.post('NodeWorker.sendMessageToWorker', { sessionId, message })
    }
    // Also where it was never stopped: it would be later, and then wait for ever for somebody who has gone.
    using detachment = new DisposableStack()
    detachment.defer(() => session.post('NodeWorker.detach', { sessionId }))
    const pause = pauseOnce(send, () => detachment.dispose())
    session.on('NodeWorker.receivedMessageFromWorker', ({ params }) => {
      // The protocol of V8's inspector, from the same process.
      if (params.sessionId === sessionId) pause.onMessage(JSON.parse(params.message) as DebuggerMessage)
    })
    return frameName(await raced(pause.frames, scope))
  })
}

/** The same for the main thread of this process, asked on another thread: the one who is stuck cannot answer for itself. */
export async function nameBlockedMainThread(signal: AbortSignal): Promise<string | undefined> {
  return await attempt(signal, async (session, scope) => {
    session.connectToMainThread()
    const pause = pauseOnce(
      (method) => session.post(method),
      () => session.disconnect(),
    )
    session.on('Debugger.scriptParsed', ({ params }) => pause.onMessage({ method: 'Debugger.scriptParsed', params }))
    session.on('Debugger.paused', ({ params }) => pause.onMessage({ method: 'Debugger.paused', params }))
    return frameName(await raced(pause.frames, scope))
  })
}

/** Introduces the threads of this one to the session; undefined where the worker is none of them, because it has ended. */
async function attach(session: Session, worker: Worker, signal: AbortSignal): Promise<string | undefined> {
  let found: string | undefined
  session.on('NodeWorker.attachedToWorker', ({ params: { sessionId, workerInfo } }) => {
    // Their ids count introductions; the thread's own number is in its title.
    if (workerInfo.title.startsWith(`[worker ${worker.threadId}]`)) found = sessionId
  })
  const { promise, resolve } = Promise.withResolvers<void>()
  session.post('NodeWorker.enable', { waitForDebuggerOnStart: false }, () => resolve())
  await raced(promise, signal)
  return found
}

async function attempt(
  signal: AbortSignal,
  work: (session: Session, signal: AbortSignal) => Promise<string | undefined>,
): Promise<string | undefined> {
  const session = new Session()
  using scope = new AbortScope(signal, maxWaitMs)
  try {
    return await work(session, scope.signal)
  } catch {
    return undefined
  } finally {
    session.disconnect()
  }
}
