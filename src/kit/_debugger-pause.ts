import type { Debugger } from 'node:inspector'
import type { StackFrame } from './_stack-frame.ts'

/** A message of a debugged thread: an event, or the answer to a request, which nobody here waits for. */
export type DebuggerMessage =
  | { readonly method: 'Debugger.scriptParsed'; readonly params: Debugger.ScriptParsedEventDataType }
  | { readonly method: 'Debugger.paused'; readonly params: Debugger.PausedEventDataType }
  | { readonly method?: undefined }

export interface DebuggerPause {
  readonly frames: Promise<readonly StackFrame[]>
  /** Must be called with every message of the thread. */
  onMessage(message: DebuggerMessage): void
}

/**
 * Stops a thread for as long as it takes to send its stack. The thread is stopped between two statements, even in the middle
 * of a loop, but not inside of a native call: there it stops when that call returns. `release` ends the debugging, which lets
 * the thread go on. That must be one message and the last one: a thread that was told to end dies as soon as it goes on, and
 * Node aborts the whole process if a message meets a thread that is just being taken down.
 */
export function pauseOnce(
  send: (method: 'Debugger.enable' | 'Debugger.pause') => void,
  release: () => void,
): DebuggerPause {
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
