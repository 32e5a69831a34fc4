/**
 * `npm run interop`: the official Python clients talk to a gateway over simulators. It needs python3 with venv, and an
 * index of packages that pip can reach; without them it says so and fails.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ApiName } from '../../src/schema/index.ts'
import { findModels, GatewayServer } from '../../src/serve/index.ts'
import { SimulatorServer, type ImitationName } from '../../src/simulator/index.ts'

const here = import.meta.dirname
const adminKey = 'admin-key-of-the-interop'
const imitations: Readonly<Record<ApiName, ImitationName>> = {
  chat: 'vllm',
  responses: 'openai',
  messages: 'anthropic',
}

process.exitCode = await main()

async function main(): Promise<number> {
  await using ends = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-interop-'))
  ends.defer(() => rm(folder, { recursive: true, force: true }))
  const python = join(folder, 'venv', 'bin', 'python')
  if ((await run('python3', ['-m', 'venv', join(folder, 'venv')])) !== 0) {
    return failed('there is no python3 with venv here; install it (python3, python3-venv), then run this again')
  }
  const install = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--disable-pip-version-check',
    '-r',
    join(here, 'requirements.txt'),
  ]
  if ((await run(python, install)) !== 0) {
    return failed('the clients could not be installed; check that pip reaches PyPI or its mirror, then run this again')
  }
  const url = await startGateway(folder, ends)
  // -B: no folder of compiled modules beside the sources.
  return await run(python, ['-B', join(here, 'main.py')], { GATEWAY_URL: url, GATEWAY_ADMIN_KEY: adminKey })
}

/** One model for each API of a backend, and named after it. */
async function startGateway(folder: string, ends: AsyncDisposableStack): Promise<string> {
  const models: Record<string, { api: ApiName; backends: { url: string }[] }> = {}
  for (const api of ['chat', 'responses', 'messages'] as const) {
    const simulator = ends.use(await SimulatorServer.start({ imitate: imitations[api], reasoning: true }))
    models[api] = { api, backends: [{ url: simulator.url }] }
  }
  const found = await findModels({ backends: [], models, env: {}, signal: AbortSignal.timeout(20_000) })
  const server = ends.use(
    await GatewayServer.open({
      ...found,
      keys: [{ tenant: 'interop', key: adminKey }],
      port: 0,
      run: { root: join(folder, 'runs'), name: 'gateway' },
      env: {},
    }),
  )
  return server.url
}

/** The exit code of a program that writes to our own output; 1 if there is no such program. */
async function run(
  program: string,
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<number> {
  const child = spawn(program, words, { stdio: 'inherit', env: { ...process.env, ...env } })
  try {
    const [code] = (await once(child, 'close')) as [number | null]
    return code ?? 1
  } catch {
    return 1
  }
}

function failed(why: string): number {
  process.stderr.write(`interop: ${why}\n`)
  return 1
}
