/**
 * The measured process: rollouts that call `echo` of `server-everything`, with a process for each call, one for each rollout, a
 * session for each rollout on one server over HTTP, or one session for all. Prints one line of figures.
 */
import { Semaphore } from '../../src/kit/index.ts'
import { McpSession, ToolServers, type ServerCalls, type ServerConfig } from '../../src/tools/index.ts'
import { cpuMsOf } from '../shared/process-usage.ts'
import { childrenCpuMs } from './children-cpu.ts'
import { npmServers, saysEcho } from './servers.ts'

export type CallMode = 'spawn per call' | 'process per rollout' | 'session per rollout' | 'shared session'

export interface CallsInput {
  readonly mode: CallMode
  readonly rollouts: number
  readonly calls: number
  /** Of `server-everything` over HTTP, for sessions. */
  readonly http: { readonly url: string; readonly pid: number }
}

export interface CallsFigures {
  /** From before the first server is opened until the last rollout has its answers, and has given back what it held. */
  readonly wallMs: number
  /** Of that, from when the first rollout has its server. */
  readonly servingMs: number
  /** Of this process. */
  readonly ownCpuMs: number
  /** Of this process and of the servers. */
  readonly cpuMs: number
  readonly calls: number
}

const server = 'everything'
const maxProcesses = 32
const { signal } = new AbortController()
let sent = 0
const input = JSON.parse(process.argv[2] ?? '{}') as CallsInput

// This process's own code is compiled before the first figure. A server that is started for each call never gets that far.
await run({ ...input, rollouts: 2, calls: input.mode === 'spawn per call' ? 1 : 50 })
const before = { own: process.cpuUsage(), children: childrenCpuMs(), http: cpuMsOf(input.http.pid) }
const times = await run(input)
const { user, system } = process.cpuUsage(before.own)
const ownCpuMs = (user + system) / 1_000
const serverCpuMs = childrenCpuMs() - before.children + cpuMsOf(input.http.pid) - before.http
const calls = input.rollouts * input.calls
console.log(JSON.stringify({ ...times, ownCpuMs, cpuMs: ownCpuMs + serverCpuMs, calls } satisfies CallsFigures))

/** All servers have been closed when it ends. */
async function run({
  mode,
  rollouts,
  calls: each,
  http,
}: CallsInput): Promise<Pick<CallsFigures, 'wallMs' | 'servingMs'>> {
  const startedAt = performance.now()
  let firstAt = Number.POSITIVE_INFINITY
  const toldTimes = (): Pick<CallsFigures, 'wallMs' | 'servingMs'> => {
    const now = performance.now()
    return { wallMs: now - startedAt, servingMs: now - firstAt }
  }
  if (mode === 'spawn per call') {
    firstAt = startedAt
    const starts = new Semaphore(rollouts)
    await together(rollouts, async () => {
      for (let call = 0; call < each; call += 1) await spawnForCall(starts)
    })
    return toldTimes()
  }
  await using servers = new ToolServers({ servers: { [server]: configOf(mode, http.url) }, onEvent: () => {} })
  await together(rollouts, async () => {
    await using lease = await servers.lease({ signal })
    firstAt = Math.min(firstAt, performance.now())
    for (let call = 0; call < each; call += 1) await echo(lease)
  })
  return toldTimes()
}

async function spawnForCall(starts: Semaphore): Promise<void> {
  await using session = new McpSession({ name: server, config: npmServers.everything, starts, onEvent: () => {} })
  await session.open(signal)
  await echo({ call: (_server, call) => session.call(call) })
}

async function echo(servers: ServerCalls): Promise<void> {
  const message = String((sent += 1))
  const { content } = await servers.call(server, { tool: 'echo', arguments: { message }, signal })
  if (!saysEcho(content, message)) throw new Error(`echo answered ${JSON.stringify(content)}`)
}

function configOf(mode: Exclude<CallMode, 'spawn per call'>, url: string): ServerConfig {
  const configs = {
    'process per rollout': { ...npmServers.everything, sharing: 'pooled', pool: { warm: 0, max: maxProcesses } },
    'session per rollout': { url, sharing: 'session' },
    'shared session': { ...npmServers.everything, sharing: 'shared' },
  } as const satisfies Record<typeof mode, ServerConfig>
  return configs[mode]
}

async function together(count: number, work: () => Promise<void>): Promise<void> {
  await Promise.all(Array.from({ length: count }, work))
}
