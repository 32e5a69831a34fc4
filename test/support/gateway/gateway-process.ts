import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { Agent, type Dispatcher, request } from 'undici'
import { type Running, startMillrace } from '../cli/millrace-process.ts'
import type { OpenToAsk } from './scripted-conversation.ts'

const bin = fileURLToPath(new URL('../../../bin/millrace.js', import.meta.url))

interface GatewayProcess extends AsyncDisposable {
  readonly url: string
  readonly running: Running
}

const processKey = 'the admin key of a process'

/** `millrace gateway` in a process of its own, once it listens. */
export async function startGateway(cwd: string, ...words: readonly string[]): Promise<GatewayProcess> {
  const env = { MILLRACE_ADMIN_KEY: processKey }
  const running = startMillrace({ cwd, env }, 'gateway', ...words, '--port', '0')
  await running.shows('stdout', 'gateway on ')
  return { url: urlIn(running.stdout()), running, [Symbol.asyncDispose]: () => running[Symbol.asyncDispose]() }
}

/** The same with so many file descriptors. */
export async function startCrampedGateway(
  cwd: string,
  descriptors: number,
  ...words: readonly string[]
): Promise<{ readonly url: string } & AsyncDisposable> {
  const command = [process.execPath, bin, 'gateway', ...words, '--port', '0', '--log-level', 'error']
  const child = spawn('sh', ['-c', `ulimit -n ${descriptors} && exec "$@"`, 'sh', ...command], {
    cwd,
    env: { PATH: process.env['PATH'], HOME: cwd, MILLRACE_ADMIN_KEY: processKey },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const closed = once(child, 'close')
  let stdout = ''
  child.stdout.setEncoding('utf8')
  for await (const text of child.stdout) {
    stdout += String(text)
    if (stdout.includes('gateway on ')) break
  }
  return {
    url: urlIn(stdout),
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await closed
    },
  }
}

export function authorized(key: string = processKey): Record<string, string> {
  return { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
}

function urlIn(stdout: string): string {
  const [, url = ''] = /gateway on (\S+)/.exec(stdout) ?? []
  return url
}

/** A gateway in another process, asked over connections that end with the scope. */
export class AskedProcess implements OpenToAsk, AsyncDisposable {
  readonly #url: string
  readonly #agent = new Agent()

  constructor(url: string) {
    this.#url = url
  }

  async open(path: string, ask: Parameters<OpenToAsk['open']>[1]): Promise<Dispatcher.ResponseData> {
    const { method = 'POST', body, key = processKey, headers = {} } = ask
    return await request(this.#url + path, {
      dispatcher: this.#agent,
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
  }

  async json(path: string, body?: unknown): Promise<Record<string, unknown>> {
    const asked = await this.open(path, body === undefined ? { method: 'GET' } : { body })
    return (await asked.body.json()) as Record<string, unknown>
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy()
  }
}
