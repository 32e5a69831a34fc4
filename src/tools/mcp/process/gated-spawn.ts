import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'
import type { Readable, Writable } from 'node:stream'
import { gateName, type ServerExit } from './server-exit.ts'

/**
 * The command waits here, as the leader of a process group of its own, until it is let through. If we die before that, the
 * pipe ends and it never runs.
 */
const gateScript = 'read -r go <&3 || exit 1; exec 3<&-; exec "$@"'

/**
 * What Node calls a pipe is a socket. A bash that finds one as its standard input, and no shell above itself, takes itself for
 * one that another machine started, and reads `~/.bashrc`: the variables that we keep back would be there again.
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
  /** A line lets the command through; its end turns it away. */
  readonly gate: Socket
  readonly exited: Promise<ServerExit>
  /** When it has exited and its output was read to the end. */
  readonly closed: Promise<void>
}

/** Starts a command, up to the gate. */
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
  // All are there or none is, and then an event says why.
  if (pid === undefined || !stdin || !stdout || !stderr || !(gate instanceof Socket)) {
    const [error] = await once(child, 'error')
    throw error
  }
  const exited = new Promise<ServerExit>((end) => child.once('exit', (code, signal) => end({ code, signal })))
  const closed = new Promise<void>((end) => child.once('close', () => end()))
  // Writing to a process that has died fails for who writes; the event is the same news once more.
  for (const pipe of [stdin, stdout, stderr, gate]) pipe.on('error', () => {})
  return { pid, stdin, stdout, stderr, gate, exited, closed }
}

export function letThrough({ gate }: GatedProcess): void {
  gate.end('\n', () => gate.destroy())
}
