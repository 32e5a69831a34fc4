import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'
import type { Readable, Writable } from 'node:stream'
import { gateName, type ServerExit } from './server-exit.ts'

/**
 * The command waits here, as the leader of a process group of its own, until it is let through. If we die before that, the pipe
 * ends and the command never runs.
 */
const gateScript = 'read -r go <&3 || exit 1; exec 3<&-; exec "$@"'

/**
 * Node's pipes are sockets. A bash that has a socket as standard input, and no shell above itself, thinks that another machine
 * started it and reads `~/.bashrc`, which may set the variables that we keep back.
 */
const localShell = { SHLVL: '1' }

export interface GatedCommand {
  readonly command: string
  readonly args?: readonly string[]
  readonly cwd?: string | undefined
}

export interface GatedProcess {
  readonly pid: number
  readonly stdin: Writable
  readonly stdout: Readable
  readonly stderr: Readable
  /** A line lets the command through; the end of the pipe turns it away. */
  readonly gate: Socket
  readonly exited: Promise<ServerExit>
  /** Resolves when the process has exited and its output was read to the end. */
  readonly closed: Promise<void>
}

/** Starts a command, which waits at the gate. */
export async function spawnGated(
  { command, args = [], cwd }: GatedCommand,
  env: NodeJS.ProcessEnv,
): Promise<GatedProcess> {
  const child = spawn('/bin/sh', ['-c', gateScript, gateName, command, ...args], {
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
    env: { ...localShell, ...env },
    ...(cwd !== undefined && { cwd }),
  })
  const { pid, stdin, stdout, stderr } = child
  const gate = child.stdio[3]
  // Either all parts are there or none, and then an event says why.
  if (pid === undefined || !stdin || !stdout || !stderr || !(gate instanceof Socket)) {
    const [error] = await once(child, 'error')
    throw error
  }
  const exited = new Promise<ServerExit>((end) => child.once('exit', (code, signal) => end({ code, signal })))
  const closed = new Promise<void>((end) => child.once('close', () => end()))
  // A write to a dead process fails for the writer; the event says the same again.
  for (const pipe of [stdin, stdout, stderr, gate]) pipe.on('error', () => {})
  return { pid, stdin, stdout, stderr, gate, exited, closed }
}

export function letThrough({ gate }: GatedProcess): void {
  gate.end('\n', () => gate.destroy())
}
