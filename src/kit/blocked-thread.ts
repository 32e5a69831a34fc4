import { Session } from 'node:inspector'
import { isMainThread, type Worker } from 'node:worker_threads'
import { pauseOnce, type DebuggerMessage } from './_debugger-pause.ts'
import { frameName } from './_stack-frame.ts'
import { AbortScope } from './abort-scope.ts'
import { raced } from './raced.ts'

/** A thread that can be stopped at all answers within some 50 ms; one inside of a native call may never answer. */
const maxWaitMs = 1_000

/**
 * What a thread that this one started is stuck in: `name (file:line)` of the innermost frame in the user's code, else in a
 * package, else in ours. Undefined if it cannot be told within a second, as inside of a native call, or if the thread is not
 * stuck. Never throws, opens no port, and leaves the thread as it was.
 */
export async function nameBlockedThread(worker: Worker, signal: AbortSignal): Promise<string | undefined> {
  return await attempt(signal, async (session, scope) => {
    // The main thread alone can introduce threads to a session, and it introduces those of other threads as well.
    if (isMainThread) session.connect()
    else session.connectToMainThread()
    const sessionId = await attach(session, worker, scope)
    if (sessionId === undefined) return undefined
    let requests = 0
    const send = (method: string): void => {
      const message = JSON.stringify({ id: (requests += 1), method })
      session.post('NodeWorker.sendMessageToWorker', { sessionId, message })
    }
    // Detaches even if the thread was not stopped: it would be stopped later, and then wait for ever to be released.
    using detachment = new DisposableStack()
    detachment.defer(() => session.post('NodeWorker.detach', { sessionId }))
    const pause = pauseOnce(send, () => detachment.dispose())
    session.on('NodeWorker.receivedMessageFromWorker', ({ params }) => {
      // The cast is safe: messages follow the protocol of V8's inspector, and come from the same process.
      if (params.sessionId === sessionId) pause.onMessage(JSON.parse(params.message) as DebuggerMessage)
    })
    return frameName(await raced(pause.frames, scope))
  })
}

/** Like `nameBlockedThread`, for the main thread of this process. Called on another thread, because a stuck one cannot answer. */
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

/** Attaches the session to the threads that this one started; undefined if the worker is not among them, because it has ended. */
async function attach(session: Session, worker: Worker, signal: AbortSignal): Promise<string | undefined> {
  let found: string | undefined
  session.on('NodeWorker.attachedToWorker', ({ params: { sessionId, workerInfo } }) => {
    // Session ids count attachments; the thread's own id is in its title.
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
