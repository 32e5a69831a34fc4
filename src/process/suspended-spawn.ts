import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'
import type { Readable, Writable } from 'node:stream'

/** How a process ended: one of the two is set. */
export interface ProgramExit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** The name under which the gate's shell complains: this tells a command that it could not run from the server's own errors. */
const suspendName = 'millrace-gate'
const notExecutable = 126
const notFound = 127

/** The command waits here as the leader of its group. If we die before it is let through, it never runs. */
const suspendScript = 'read -r go <&3 || exit 1; exec 3<&-; exec "$@"'

/**
 * Node's pipes are sockets. A bash that has a socket as standard input, and no shell above itself, thinks that another machine
 * started it and reads `~/.bashrc`, which may set the variables that we keep back.
 */
const localShell = { SHLVL: '1' }

export interface SpawnedCommand {
  readonly command: string
  readonly args?: readonly string[]
  readonly cwd?: string | undefined
}

export interface SuspendedProcess {
  readonly pid: number
  readonly stdin: Writable
  readonly stdout: Readable
  readonly stderr: Readable
  /** A line lets the command through; the end of the pipe turns it away. */
  readonly resumePipe: Socket
  readonly exited: Promise<ProgramExit>
  readonly closed: Promise<void>
}

export async function spawnSuspended(
  { command, args = [], cwd }: SpawnedCommand,
  env: NodeJS.ProcessEnv,
): Promise<SuspendedProcess> {
  const child = spawn('/bin/sh', ['-c', suspendScript, suspendName, command, ...args], {
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    env: { ...localShell, ...env },
    ...(cwd !== undefined && { cwd }),
  })
  const { pid, stdin, stdout, stderr } = child
  const resumePipe = child.stdio[3]
  // Either all parts are there or none, and then an event says why.
  if (pid === undefined || !stdin || !stdout || !stderr || !(resumePipe instanceof Socket)) {
    const [error] = await once(child, 'error')
    throw error
  }
  const exited = new Promise<ProgramExit>((end) => child.once('exit', (code, signal) => end({ code, signal })))
  const closed = new Promise<void>((end) => child.once('close', () => end()))
  // A write to a dead process fails for the writer; the event says the same again.
  for (const pipe of [stdin, stdout, stderr, resumePipe]) pipe.on('error', () => {})
  return { pid, stdin, stdout, stderr, resumePipe, exited, closed }
}

export function resumeSpawned({ resumePipe }: SuspendedProcess): void {
  resumePipe.end('\n', () => resumePipe.destroy())
}

/** Why a command that was let through the gate never ran; undefined if it did. */
export function startRefusal({ code }: ProgramExit, stderr: string): 'not found' | 'not executable' | undefined {
  if (!stderr.startsWith(`${suspendName}:`)) return undefined
  return code === notFound ? 'not found' : code === notExecutable ? 'not executable' : undefined
}
