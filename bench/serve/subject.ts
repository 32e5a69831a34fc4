/**
 * The measured process: `millrace serve` as it ships. Prints its URL and that of its control port, which starts a measurement
 * (`/start`, or `/start-turns` to watch the loop more closely) and ends one (`/stop`, with the figures).
 */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { registerResolver } from '../../src/env/index.ts'
import { settleHeapForRollouts } from '../../src/kit/index.ts'
import { RolloutServer, RolloutService, type ServiceStatus } from '../../src/serve/index.ts'
import { TurnWatch } from '../shared/loop-watch.ts'

export interface ServeSubjectInput {
  readonly backend: string
  readonly concurrency: number
  readonly workers?: number
  readonly captureTokens?: boolean
}

export interface ServeFigures {
  readonly wallMs: number
  /** Of the whole process, all its threads. */
  readonly cpuMs: number
  /** Of the thread with the HTTP server on it. */
  readonly frontCpuMs: number
  /** How long that thread was ready to run and had no core: what a busy machine took from it. */
  readonly coreWaitMs: number
  /** How late the front's loop ran. */
  readonly lagP99Ms: number
  readonly memoryMb: number
  /** The CPU of the longest turn of the front's loop; only where turns were watched. */
  readonly longestTurnMs?: number
  readonly codec: ServiceStatus['codec']
}

const input = JSON.parse(process.argv[2] ?? '{}') as ServeSubjectInput
registerResolver()
// As the command line does.
settleHeapForRollouts()
const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
const service = await RolloutService.open({
  environment: join(import.meta.dirname, './environment.ts'),
  model: { name: 'bench', backends: [{ url: input.backend }], price: { input: 0, output: 0 } },
  concurrency: input.concurrency,
  preflight: false,
  run: { root },
  ...(input.workers !== undefined && { workers: input.workers }),
  ...(input.captureTokens && { captureTokens: true }),
})
const httpServer = await RolloutServer.open({ service, port: 0 })

// Not `LoopWatch`, whose timer would be a twentieth of the CPU that 256 rollouts a second take.
const tickMs = 10
const delay = monitorEventLoopDelay({ resolution: tickMs })
delay.enable()

let begun: { turns?: TurnWatch; at: number; cpu: NodeJS.CpuUsage; front: NodeJS.CpuUsage; waited: number } | undefined
const control = createServer((request, response) => {
  if (request.url?.startsWith('/start')) {
    const usage = { cpu: process.cpuUsage(), front: process.threadCpuUsage(), waited: coreWaitMs() }
    const at = { at: performance.now(), ...usage }
    delay.reset()
    begun = { ...at, ...(request.url === '/start-turns' && { turns: new TurnWatch(1) }) }
  }
  response.end(request.url === '/stop' ? JSON.stringify(figures()) : '{}')
})
control.listen(0, '127.0.0.1', () => {
  const { port } = control.address() as AddressInfo
  console.log(JSON.stringify({ url: httpServer.url, control: `http://127.0.0.1:${port}` }))
})
process.once('SIGTERM', () => void end())

function figures(): ServeFigures {
  if (!begun) throw new Error('not started')
  const { turns, at, cpu, front, waited } = begun
  const longestTurnMs = turns?.stop()
  const total = process.cpuUsage(cpu)
  const own = process.threadCpuUsage(front)
  return {
    wallMs: performance.now() - at,
    cpuMs: (total.user + total.system) / 1000,
    frontCpuMs: (own.user + own.system) / 1000,
    coreWaitMs: coreWaitMs() - waited,
    memoryMb: process.memoryUsage.rss() / 2 ** 20,
    codec: service.status().codec,
    lagP99Ms: Math.max(0, delay.percentile(99) / 1e6 - tickMs),
    ...(longestTurnMs !== undefined && { longestTurnMs }),
  }
}

/** Of the main thread, from Linux's own account; 0 elsewhere. */
function coreWaitMs(): number {
  if (process.platform !== 'linux') return 0
  const [, waitedNs = '0'] = readFileSync('/proc/self/schedstat', 'utf8').split(' ')
  return Number(waitedNs) / 1e6
}

async function end(): Promise<void> {
  control.close()
  control.closeAllConnections()
  await service.drain()
  await httpServer.close()
  await service.close()
  await rm(root, { recursive: true, force: true })
  process.exit(0)
}
