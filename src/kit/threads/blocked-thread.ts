import { type Debugger, Session } from 'node:inspector'
import { fileURLToPath } from 'node:url'
import { isMainThread, type Worker } from 'node:worker_threads'
import { AbortScope, withAbort } from '../async/lifecycle.ts'

/** A thread that can be stopped at all answers within some 50 ms; one inside of a native call may never answer. */
const maxWaitMs = 1_000

/**
 * `name (file:line)` of the innermost frame in the user's code, else in a package, else in ours. Undefined if it cannot be
 * told within a second, as inside of a native call. Never throws, opens no port, and leaves the thread as it was.
 */
export async function nameBlockedThread(worker: Worker, signal: AbortSignal): Promise<string | undefined> {
  const session = new Session()
  using scope = new AbortScope(signal, maxWaitMs)
  try {
    // The main thread alone can introduce threads to a session, and it introduces those of other threads as well.
    if (isMainThread) session.connect()
    else session.connectToMainThread()
    const sessionId = await attach(session, worker, scope.signal)
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
    return frameName(await withAbort(pause.frames, scope.signal))
  } catch {
    return undefined
  } finally {
    session.disconnect()
  }
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
  await withAbort(promise, signal)
  return found
}

/** A message of a debugged thread: an event, or the answer to a request, which nobody here waits for. */
type DebuggerMessage =
  | { readonly method: 'Debugger.scriptParsed'; readonly params: Debugger.ScriptParsedEventDataType }
  | { readonly method: 'Debugger.paused'; readonly params: Debugger.PausedEventDataType }
  | { readonly method?: undefined }

interface DebuggerPause {
  readonly frames: Promise<readonly StackFrame[]>
  onMessage(message: DebuggerMessage): void
}

/**
 * Stops a thread, between two statements, for as long as it takes to send its stack. `release` ends the debugging, which lets
 * the thread go on. That must be the last message: Node aborts the process if a message meets a thread that is being taken
 * down.
 */
function pauseOnce(send: (method: 'Debugger.enable' | 'Debugger.pause') => void, release: () => void): DebuggerPause {
  // Frames name their script by its id; all scripts are announced before the first pause.
  const urls = new Map<string, string>()
  const { promise: frames, resolve } = Promise.withResolvers<readonly StackFrame[]>()
  send('Debugger.enable')
  send('Debugger.pause')
  return {
    frames,
    onMessage(message) {
      if (message.method === 'Debugger.scriptParsed') urls.set(message.params.scriptId, message.params.url)
      if (message.method !== 'Debugger.paused') return
      release()
      resolve(
        message.params.callFrames.map(({ functionName, location }) => ({
          functionName,
          url: urls.get(location.scriptId) ?? '',
          line: location.lineNumber + 1,
        })),
      )
    },
  }
}

interface StackFrame {
  readonly functionName: string
  readonly url: string
  readonly line: number
}

const ownFolder = new URL('../../', import.meta.url).href

/** Tests for the owner of a frame, the most telling first: users look for their own function, not for what it called. */
const owners: readonly ((url: string) => boolean)[] = [
  (url) => url.startsWith('file:') && !url.includes('/node_modules/') && !url.startsWith(ownFolder),
  (url) => url.startsWith('file:') && !url.startsWith(ownFolder),
  (url) => url.startsWith('file:'),
]

/** Undefined if all frames are Node's: such a thread was only just about to do something. */
export function frameName(frames: readonly StackFrame[]): string | undefined {
  for (const isOwner of owners) {
    const frame = frames.find(({ url }) => isOwner(url))
    if (frame) return `${frame.functionName || 'anonymous'} (${fileURLToPath(frame.url)}:${frame.line})`
  }
  return undefined
}
