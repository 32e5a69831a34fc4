/**
 * Prints which files of `src/` a warm recorded request of the gateway and a warm turn of a rollout run through, by V8's
 * own coverage of the main thread. The model is a simulator in another process, so that its files do not count.
 *
 *     npm run touched -- [--json | --quiet]
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { Session } from 'node:inspector/promises'
import { join, relative } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { request } from 'undici'
import { defineEnvironment, evaluate, GatewayServer, z } from '../src/index.ts'
import { resolveModelConfig } from '../src/inference/index.ts'
import { temporaryRuns } from '../src/testing/index.ts'

const root = join(import.meta.dirname, '..')
const bounds = { request: 50, turn: 24 }
const key = 'a key for measuring only'

/** Precise coverage counts calls of functions from `start` to `take`. */
class Coverage {
  readonly #session = new Session()

  constructor() {
    this.#session.connect()
  }

  async start(): Promise<void> {
    await this.#session.post('Profiler.enable')
    await this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  }

  async take(): Promise<string[]> {
    const { result } = await this.#session.post('Profiler.takePreciseCoverage')
    await this.#session.post('Profiler.stopPreciseCoverage')
    return result
      .filter(({ url, functions }) => {
        return url.startsWith('file:') && functions.some(({ ranges }) => ranges.some(({ count }) => count > 0))
      })
      .map(({ url }) => relative(root, fileURLToPath(url)))
      .filter((path) => path.startsWith('src/'))
      .toSorted()
  }
}

async function startSimulator(): Promise<{ readonly url: string; readonly child: ChildProcess }> {
  const child = spawn(process.execPath, [join(root, 'bin/millrace.js'), 'sim', '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  for await (const line of createInterface({ input: child.stdout })) {
    const [url] = /http:\S+\/v1/.exec(line) ?? []
    if (url) return { url, child }
  }
  throw new Error('the simulator did not start')
}

async function filesOfRequest(url: string): Promise<string[]> {
  await using runs = await temporaryRuns()
  await using server = await GatewayServer.open({
    models: [resolveModelConfig({ model: { name: 'sim', backends: [{ url }] }, env: {} })],
    keys: [{ tenant: 'measuring', key }],
    port: 0,
    run: { root: runs.root, name: 'gateway' },
    env: {},
  })
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` }
  const started = await request(`${server.url}/v1/sessions`, { method: 'POST', headers, body: '{}' })
  const { sessions } = (await started.body.json()) as { sessions: { key: string }[] }
  const sessionHeaders = { ...headers, authorization: `Bearer ${sessions[0]?.key}` }
  const messages: { role: string; content: string }[] = []
  const ask = async (): Promise<void> => {
    messages.push({ role: 'user', content: `What is ${messages.length} + 1?` })
    const body = JSON.stringify({ model: 'sim', messages })
    const reply = await request(`${server.url}/v1/chat/completions`, { method: 'POST', headers: sessionHeaders, body })
    if (reply.statusCode !== 200) throw new Error(await reply.body.text())
    const { choices } = (await reply.body.json()) as { choices: { message: { role: string; content: string } }[] }
    if (choices[0]) messages.push({ role: 'assistant', content: choices[0].message.content })
  }
  for (let warm = 0; warm < 20; warm += 1) await ask()
  const coverage = new Coverage()
  await coverage.start()
  await ask()
  return coverage.take()
}

/** From one guess of the twelfth rollout to its next: the result goes back, the model answers, the tool is called. */
async function filesOfTurn(url: string): Promise<string[]> {
  await using runs = await temporaryRuns()
  const coverage = new Coverage()
  let guesses = 0
  let files: string[] | undefined
  const environment = defineEnvironment({
    name: 'measured',
    task: z.object({ secret: z.number() }),
    tasks: () => Array.from({ length: 12 }, () => ({ secret: 1_000_000 })),
    prompt: () => 'I think of a whole number between 1 and 1000000. Find it.',
    tools: {
      guess: {
        description: 'Guesses the number; says whether it is higher, lower, or correct.',
        parameters: z.object({ number: z.number().int() }),
        run: async ({ number }, { task }) => {
          guesses += 1
          if (guesses === 110) await coverage.start()
          if (guesses === 111) files = await coverage.take()
          return number === task.secret ? 'correct' : 'higher'
        },
      },
    },
    reward: () => 1,
  })
  const run = evaluate({
    environment,
    model: { name: 'sim', backends: [{ url }] },
    concurrency: 1,
    run: { root: runs.root },
  })
  await run.summary()
  if (!files) throw new Error(`the rollouts ended after ${guesses} guesses`)
  return files
}

const { url, child } = await startSimulator()
try {
  const figures = { request: await filesOfRequest(url), turn: await filesOfTurn(url) }
  if (process.argv.includes('--json')) console.log(JSON.stringify(figures, undefined, 2))
  else if (!process.argv.includes('--quiet')) {
    for (const [name, files] of Object.entries(figures))
      console.log(`${name}: ${files.length} files\n  ${files.join('\n  ')}`)
  }
  const isWithin = figures.request.length <= bounds.request && figures.turn.length <= bounds.turn
  console.log(
    `a recorded request ${figures.request.length} of at most ${bounds.request}, a turn ${figures.turn.length} of at most ${bounds.turn}`,
  )
  process.exitCode = isWithin ? 0 : 1
} finally {
  child.kill('SIGTERM')
  await once(child, 'exit')
}
