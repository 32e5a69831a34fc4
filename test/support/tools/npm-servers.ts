/** Servers from npm, started as users start them. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { freePort } from '../kit/free-port.ts'

/** A file of an installed package. */
export const packageFile = (path: string): string =>
  fileURLToPath(new URL(`../../../node_modules/${path}`, import.meta.url))

const program = (name: string): string => packageFile(`@modelcontextprotocol/server-${name}/dist/index.js`)

/** The configuration of one over stdio. */
export function npmServer(name: 'everything' | 'filesystem' | 'memory', ...args: string[]) {
  return { command: process.execPath, args: [program(name), ...args] }
}

/** `server-everything` as somebody else's process, which is reached by a URL. */
export async function everythingOver(transport: 'sse' | 'streamableHttp') {
  const port = await freePort()
  const child = spawn(process.execPath, [program('everything'), transport], {
    env: { PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const { promise: isListening, resolve, reject } = Promise.withResolvers<void>()
  let said = ''
  // Read to its end: a server whose stderr is closed dies of it.
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text
    if (said.includes('on port')) resolve()
  })
  const exited = once(child, 'exit')
  void exited.then(() => reject(new Error(`server-everything ended: ${said}`)))
  await isListening
  return {
    config: {
      type: transport === 'sse' ? ('sse' as const) : ('http' as const),
      url: `http://127.0.0.1:${port}/${transport === 'sse' ? 'sse' : 'mcp'}`,
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await exited
    },
  }
}
