import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { expect, test } from 'vitest'
import { MillraceError } from '../../src/errors/index.ts'
import { Semaphore } from '../../src/kit/index.ts'
import { calling } from '../support/tools/session-with.ts'
import { McpSession } from '../../src/tools/mcp/session/mcp-session.ts'
import type { ServerConfig } from '../../src/tools/mcp/config/server-config.ts'
import { freePort } from '../support/kit/free-port.ts'

const everything = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js')

function sessionOn(config: ServerConfig) {
  const session = new McpSession({ name: 'everything', config, starts: new Semaphore(1), onEvent: () => {} })
  return { session, [Symbol.asyncDispose]: () => session.close() }
}

/** The server as a process of ours that listens on a port. */
async function everythingOver(transport: 'sse' | 'streamableHttp') {
  const port = await freePort()
  const run = async () => {
    const child = spawn(process.execPath, [everything, transport], {
      env: { PORT: String(port) },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    // Read to its end: a server whose stderr is closed dies of it.
    const { promise: isListening, resolve } = Promise.withResolvers<void>()
    child.stderr.on('data', (chunk) => String(chunk).includes('on port') && resolve())
    await isListening
    return child
  }
  let child = await run()
  const kill = async () => {
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }
  return {
    url: `http://127.0.0.1:${port}/${transport === 'sse' ? 'sse' : 'mcp'}`,
    async restart() {
      await kill()
      child = await run()
    },
    [Symbol.asyncDispose]: kill,
  }
}

async function exercise(session: McpSession): Promise<void> {
  const { tools } = await session.open()
  expect(tools.map(({ name }) => name)).toContain('echo')
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'Echo: hi', isError: false })
  const weather = await session.call(calling('get-structured-content', { location: 'Chicago' }))
  expect(weather.structured).toMatchObject({ temperature: expect.any(Number) })
  const image = await session.call(calling('get-tiny-image', {}))
  expect(image.content).toContainEqual({
    type: 'image_url',
    image_url: { url: expect.stringMatching(/^data:image\/png/) },
  })
  const links = await session.call(calling('get-resource-links', { count: 2 }))
  expect(links.content).toContain('demo://')
  const wrong = await session.call(calling('get-sum', { a: 'no number' }))
  expect(wrong).toMatchObject({ isError: true, content: expect.stringContaining('a') })
  const steps: number[] = []
  await session.call({
    ...calling('trigger-long-running-operation', { duration: 0.2, steps: 4 }),
    onProgress: ({ progress }) => steps.push(progress),
  })
  expect(steps).toHaveLength(4)
  const many = await Promise.all(
    Array.from({ length: 100 }, (_, index) => session.call(calling('echo', { message: String(index) }))),
  )
  expect(many.map(({ content }) => content)).toEqual(many.map((_, index) => `Echo: ${index}`))
}

test('server-everything over stdio', async () => {
  await using made = sessionOn({ command: process.execPath, args: [everything, 'stdio'] })
  await exercise(made.session)
})

test.each(['streamableHttp', 'sse'] as const)(
  'server-everything over %s, also after it is killed',
  async (transport) => {
    await using server = await everythingOver(transport)
    await using made = sessionOn({ type: transport === 'sse' ? 'sse' : 'http', url: server.url, retry: 'always' })
    await exercise(made.session)
    const cut = made.session
      .call(calling('trigger-long-running-operation', { duration: 30, steps: 1 }))
      .catch((error: unknown) => error)
    await server.restart()
    expect(await made.session.call(calling('echo'))).toMatchObject({
      content: 'Echo: hi',
      detail: { sessionRestarted: true },
    })
    await made.session.close()
    expect(await cut).toBeInstanceOf(MillraceError)
  },
)
