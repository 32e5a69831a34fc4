/**
 * The measured process: how long it takes until servers are open: all together, all together with nothing but the SDK's own client
 * and transports, and some alone, in turns. Prints one line of figures.
 */
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { ToolServers, type ServerConfig } from '../../src/tools/index.ts'
import { median } from '../shared/benchmark.ts'
import { childrenCpuMs } from './children-cpu.ts'

export interface StartInput {
  readonly servers: Readonly<Record<string, ServerConfig>>
  /** Those that may be the slowest. */
  readonly alone: readonly string[]
  readonly rounds: number
}

export interface StartFigures {
  readonly togetherMs: number
  /** The same, with the bare SDK. */
  readonly bareMs: number
  /** CPU of the servers that are processes of ours, from their start to their end, together. */
  readonly serverCpuMs: number
  readonly aloneMs: Readonly<Record<string, number>>
}

const { servers, alone: names, rounds } = JSON.parse(process.argv[2] ?? '{}') as StartInput
const { signal } = new AbortController()
const together: number[] = []
const bare: number[] = []
const cpu: number[] = []
const alone = names.map((name) => ({ name, ms: [] as number[] }))
// Neither this process's code nor the servers' files are read for the first time in a figure.
await opened(servers)
for (let round = 0; round < rounds; round += 1) {
  const cpuBefore = childrenCpuMs()
  together.push(await opened(servers))
  cpu.push(childrenCpuMs() - cpuBefore)
  bare.push(await openedBare())
  for (const { name, ms } of alone) ms.push(await opened({ [name]: servers[name] as ServerConfig }))
}
const aloneMs = Object.fromEntries(alone.map(({ name, ms }) => [name, median(ms)]))
const figures: StartFigures = { togetherMs: median(together), bareMs: median(bare), serverCpuMs: median(cpu), aloneMs }
console.log(JSON.stringify(figures))

/** Milliseconds until all of them could be called. They are closed again before it ends. */
async function opened(chosen: Readonly<Record<string, ServerConfig>>): Promise<number> {
  await using pool = new ToolServers({ servers: chosen, onEvent: () => {} })
  const startedAt = performance.now()
  await using lease = await pool.lease({ signal })
  const ms = performance.now() - startedAt
  if (lease.failures.length > 0) throw lease.failures[0]?.error
  return ms
}

async function openedBare(): Promise<number> {
  const startedAt = performance.now()
  const clients = await Promise.all(Object.values(servers).map(connected))
  const ms = performance.now() - startedAt
  await Promise.all(clients.map((client) => client.close()))
  return ms
}

async function connected(config: ServerConfig): Promise<Client> {
  const client = new Client({ name: 'bench', version: '1' })
  await client.connect(
    'url' in config
      ? new StreamableHTTPClientTransport(new URL(config.url))
      : new StdioClientTransport({ command: config.command, args: [...(config.args ?? [])], stderr: 'ignore' }),
  )
  await client.listTools()
  return client
}
