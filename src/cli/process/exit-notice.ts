import process from 'node:process'
import { exitCodes } from './exit-codes.ts'
import type { CommandIo } from './io.ts'

/**
 * Until it is disposed of: if the process exits, code that is not ours has ended it (`process.exit` in a reward, say), and
 * a person should hear what that was and how to go on. Nothing else can still be done then. Whatever code it was ended
 * with means something else to those who wrote it than it does of a command: this one has failed.
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
