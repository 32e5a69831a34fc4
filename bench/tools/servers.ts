import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { setTimeout as pause } from 'node:timers/promises'
import { freePort } from '../../test/support/kit/free-port.ts'
import type { ContentPart } from '../../src/schema/index.ts'

/** An entry of `mcpServers` that is a command. */
export interface CommandEntry {
  readonly command: string
  readonly args: readonly string[]
}

const installed = (path: string): string => fileURLToPath(new URL(`../../node_modules/${path}`, import.meta.url))

/** Servers from npm, each started as its package's own file. */
export const npmServers = {
  everything: entry(installed('@modelcontextprotocol/server-everything/dist/index.js'), 'stdio'),
  filesystem: entry(installed('@modelcontextprotocol/server-filesystem/dist/index.js'), import.meta.dirname),
  memory: entry(installed('@modelcontextprotocol/server-memory/dist/index.js')),
  playwright: entry(installed('@playwright/mcp/cli.js'), '--headless', '--isolated'),
} as const

/** A small server that waits so long before it answers at all, as one does that loads a model or asks another service. */
export function waitingServer(ms: number): CommandEntry {
  return entry(fileURLToPath(new URL('./waiting-server.ts', import.meta.url)), String(ms))
}

function entry(...args: string[]): CommandEntry {
  return { command: process.execPath, args: ['--no-warnings', ...args] }
}

/** Whether a call of `echo` came back with its own message: an answer to another one's call would be fast, and wrong. */
export function saysEcho(content: string | readonly ContentPart[], message: string): boolean {
  const [part] = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content
  return part?.type === 'text' && part.text === `Echo: ${message}`
}

/** `server-everything` over Streamable HTTP, a process of its own. */
export class HttpServer implements AsyncDisposable {
  readonly url: string
  readonly #process: ChildProcess

  private constructor(child: ChildProcess, port: number) {
    this.#process = child
    this.url = `http://127.0.0.1:${port}/mcp`
  }

  static async start(): Promise<HttpServer> {
    const port = await freePort()
    const { command, args } = npmServers.everything
    const child = spawn(command, [...args.slice(0, -1), 'streamableHttp'], {
      env: { ...process.env, PORT: String(port) },
      stdio: 'ignore',
    })
    const server = new HttpServer(child, port)
    while (!(await isListening(server.url))) {
      if (child.exitCode !== null) throw new Error('the server over HTTP did not start')
      await pause(50)
    }
    return server
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill('SIGKILL')
    await once(this.#process, 'exit')
  }
}

async function isListening(url: string): Promise<boolean> {
  try {
    await (await fetch(url, { method: 'DELETE' })).arrayBuffer()
    return true
  } catch {
    return false
  }
}
