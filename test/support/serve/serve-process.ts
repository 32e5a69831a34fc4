import { startMillrace, type Running } from '../cli/millrace-process.ts'

export interface ServeProcess extends AsyncDisposable {
  readonly url: string
  readonly running: Running
}

/** `millrace serve` in a process of its own, once it listens. */
export async function startServe(cwd: string, ...words: readonly string[]): Promise<ServeProcess> {
  const running = startMillrace({ cwd }, 'serve', ...words, '--port', '0')
  await running.shows('stdout', 'serving on ')
  const [, url = ''] = /serving on (\S+)/.exec(running.stdout()) ?? []
  return { url, running, [Symbol.asyncDispose]: () => running[Symbol.asyncDispose]() }
}

export async function post(url: string, body: unknown): Promise<Response> {
  const headers = { 'content-type': 'application/json' }
  return await fetch(`${url}/v1/rollouts`, { method: 'POST', headers, body: JSON.stringify(body) })
}
