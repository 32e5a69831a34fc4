import process from 'node:process'
import { exitCodes } from './exit-codes.ts'
import type { CommandIo } from './io.ts'

/**
 * Reports an exit of the process until it is disposed of: such an exit comes from code that is not ours (`process.exit` in a
 * reward, say). The notice says so, and how to continue; nothing else can be done at that point. The exit code is replaced
 * by that of a failed command, because the code's author meant something else by it.
 */
export function exitNotice(io: Pick<CommandIo, 'events' | 'stderr'>, howToGoOn: string): Disposable {
  const onExit = (code: number): void => {
    process.exitCode = exitCodes.failed
    void io.stderr.line(
      `error: code of the environment, or something it uses, ended the process (process.exit, code ${code}). ${howToGoOn}`,
    )
  }
  io.events.on('exit', onExit)
  return { [Symbol.dispose]: () => void io.events.off('exit', onExit) }
}
