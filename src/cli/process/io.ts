import type { EventEmitter } from 'node:events'
import process from 'node:process'
import { Output, type OutputStream } from './output.ts'
import { programName } from './_program-name.ts'

/** A command's whole access to its process, so that a test can replace it. */
export interface CommandIo extends Disposable {
  readonly stdout: Output
  readonly stderr: Output
  readonly env: Record<string, string | undefined>
  readonly cwd: string
  /** See `programName`. */
  readonly program: string
  /** Emits SIGINT, SIGTERM, SIGHUP and exit. */
  readonly events: Pick<EventEmitter, 'on' | 'off'>
}

export interface ProcessParts {
  readonly stdout?: OutputStream
  readonly stderr?: OutputStream
  readonly env?: Record<string, string | undefined>
  readonly cwd?: string
  readonly events?: Pick<EventEmitter, 'on' | 'off'>
}

export function openIo(parts: ProcessParts = {}): CommandIo {
  const env = parts.env ?? process.env
  const stdout = new Output(parts.stdout ?? process.stdout, env)
  const stderr = new Output(parts.stderr ?? process.stderr, env)
  return {
    stdout,
    stderr,
    env,
    cwd: parts.cwd ?? process.cwd(),
    get program() {
      return programName(env)
    },
    events: parts.events ?? process,
    [Symbol.dispose]() {
      stdout[Symbol.dispose]()
      stderr[Symbol.dispose]()
    },
  }
}
