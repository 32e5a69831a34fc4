/** The measured process: calls on an open session, as many at once as it is told. Prints what each cost this process, in CPU. */
import { Semaphore } from '../../src/kit/index.ts'
import { McpSession } from '../../src/tools/index.ts'
import { median } from '../shared/benchmark.ts'
import { npmServers, saysEcho } from './servers.ts'

export interface CostInput {
  readonly concurrency: number
  readonly calls: number
  readonly rounds: number
}

export interface CostFigures {
  readonly cpuMs: number
  readonly perSecond: number
}

const { concurrency, calls, rounds } = JSON.parse(process.argv[2] ?? '{}') as CostInput
const { signal } = new AbortController()
await using session = new McpSession({
  name: 'everything',
  config: npmServers.everything,
  starts: new Semaphore(1),
  onEvent: () => {},
})
await session.open(signal)
await callAll()
const measured: CostFigures[] = []
for (let round = 0; round < rounds; round += 1) {
  const before = process.cpuUsage()
  const startedAt = performance.now()
  await callAll()
  const wallMs = performance.now() - startedAt
  const { user, system } = process.cpuUsage(before)
  measured.push({ cpuMs: (user + system) / 1_000 / calls, perSecond: (calls / wallMs) * 1_000 })
}
const figures: CostFigures = {
  cpuMs: median(measured.map(({ cpuMs }) => cpuMs)),
  perSecond: median(measured.map(({ perSecond }) => perSecond)),
}
console.log(JSON.stringify(figures))

async function callAll(): Promise<void> {
  let left = calls
  const one = async (): Promise<void> => {
    while (left > 0) {
      left -= 1
      const message = String(left)
      const { content } = await session.call({ tool: 'echo', arguments: { message }, signal })
      if (!saysEcho(content, message)) throw new Error(`echo answered ${JSON.stringify(content)}`)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, one))
}
