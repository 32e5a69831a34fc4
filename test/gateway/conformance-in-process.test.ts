import { execFile } from 'node:child_process'
import { hash } from 'node:crypto'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { millrace } from '../support/cli/millrace-process.ts'

const watch = fileURLToPath(new URL('../support/gateway/socket-watch.ts', import.meta.url))
const plan = ['arithmetic', '-n', '2', '--limit', '20', '--seed', '1']
const skill = { skill: 0.8, sloppiness: 0.2 }
const simulated = ['-m', 'sim', ...Object.entries(skill).map(([name, value]) => `--sim.${name}=${value}`)]

/** Of what this seed led to before there was a gateway (0.1.0), in the words that a model is told of bad arguments since. */
const before = '450c1a186d167eda4a9b1b5adc46a09bdea810ddbd50b9624e5c8abc96ede941'

interface Evaluated {
  /** Everything on a network that the command took part in. */
  readonly traffic: ReadonlySet<string>
  /** What was said and what it was worth. */
  readonly digest: string
  readonly rewards: number
}

async function evaluated(...flags: readonly string[]): Promise<Evaluated> {
  await using runs = await temporaryRuns()
  const log = join(runs.root, 'sockets')
  const env = { NODE_OPTIONS: `--import=${watch}`, SOCKET_LOG: log }
  const { code, stderr } = await millrace({ cwd: runs.root, env }, 'eval', ...plan, ...flags)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const [file = ''] = globSync(join(runs.root, 'runs', '*', 'rollouts.jsonl'))
  const rows = readFileSync(file, 'utf8').trimEnd().split('\n').map(readRow)
  rows.sort((one, other) => (one.id < other.id ? -1 : 1))
  return {
    traffic: trafficIn(log),
    digest: hash('sha256', JSON.stringify(rows)),
    rewards: rows.reduce((sum, { reward }) => sum + reward, 0),
  }
}

function trafficIn(log: string): ReadonlySet<string> {
  return new Set(existsSync(log) ? readFileSync(log, 'utf8').trimEnd().split('\n') : [])
}

function readRow(line: string) {
  const { id, outcome, reward, messages } = JSON.parse(line) as Record<'id' | 'outcome', string> & {
    readonly reward: number
    readonly messages: readonly unknown[]
  }
  return { id, outcome, reward, messages }
}

test.for([
  ['in its own process', []],
  ['on workers', ['--workers', '2']],
] as const)(
  'an evaluation with the simulator %s uses no network and gives the same results as before',
  async ([, flags]) => {
    expect(await evaluated(...simulated, ...flags)).toEqual({ traffic: new Set(), digest: before, rewards: 34 })
  },
)

test('the network watch reports an evaluation over HTTP', async () => {
  await using simulator = await SimulatorServer.start(skill)
  const { traffic } = await evaluated('-m', 'sim-7b', '--base-url', simulator.url)
  expect(traffic).toContain('undici:request:create')
  expect(traffic).toContain('net.client.socket')
})

test('the network watch reports a listening socket', async () => {
  await using runs = await temporaryRuns()
  const log = join(runs.root, 'sockets')
  const program = `require('node:net').createServer().listen(0, '127.0.0.1', function () { this.close() })`
  const env = { ...process.env, SOCKET_LOG: log }
  await promisify(execFile)(process.execPath, [`--import=${watch}`, '-e', program], { env })
  expect(trafficIn(log)).toContain('tracing:net.server.listen:asyncStart')
})
