/**
 * What tool servers cost that stay open. Rollouts call `echo` of `server-everything`: with a process for each call, a process for
 * each rollout, a session for each rollout on one server over HTTP, and one session for all, in turns. How long five servers take to
 * start, against the slowest of them alone. What a call on an open session costs this side in CPU. What 1,000 rollouts at once with
 * three shared servers take in memory, all processes together. Linux only: there a process can be watched from outside.
 */
import { availableParallelism } from 'node:os'
import { atLeast, atMost, median, table, type Bar, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { CallMode, CallsFigures, CallsInput } from './calls.ts'
import type { CostFigures, CostInput } from './cost.ts'
import type { MemoryInput, MemoryOutcome } from './memory.ts'
import { HttpServer, npmServers, waitingServer } from './servers.ts'
import type { StartFigures, StartInput } from './start.ts'
import { TreeMemory } from './tree-memory.ts'

type Say = (line: string) => void

/** What one part of the benchmark came to. */
interface Part {
  readonly table: readonly string[]
  readonly figures: Readonly<Record<string, number>>
  readonly bars: readonly Bar[]
}

interface Line {
  readonly mode: CallMode
  readonly rollouts: number
  readonly calls: number
  readonly rounds: number
}

const few = 16
const many = 256
const callsEach = 10
const crowd = 1_000
const cores = availableParallelism()

/** Rates are what counts, so where each call or rollout takes a process there are fewer of them. */
const lines: readonly Line[] = [
  { mode: 'spawn per call', rollouts: few, calls: 3, rounds: 3 },
  { mode: 'process per rollout', rollouts: few, calls: callsEach, rounds: 3 },
  { mode: 'session per rollout', rollouts: few, calls: callsEach, rounds: 3 },
  { mode: 'shared session', rollouts: few, calls: callsEach, rounds: 3 },
  { mode: 'process per rollout', rollouts: many, calls: callsEach, rounds: 1 },
  { mode: 'session per rollout', rollouts: many, calls: callsEach, rounds: 3 },
  { mode: 'shared session', rollouts: many, calls: callsEach, rounds: 3 },
]

const quickLines: readonly Line[] = [
  { mode: 'spawn per call', rollouts: few, calls: 1, rounds: 2 },
  { mode: 'session per rollout', rollouts: few, calls: callsEach, rounds: 1 },
  { mode: 'shared session', rollouts: few, calls: callsEach, rounds: 3 },
  { mode: 'shared session', rollouts: many, calls: callsEach, rounds: 1 },
]

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  if (process.platform !== 'linux') throw new Error('this benchmark needs Linux, for /proc')
  const parts = [
    await measureCalls(isQuick ? quickLines : lines, say),
    await measureStarts(isQuick ? 2 : 7, say),
    await measureCost(isQuick, say),
    await measureMemory(say),
  ]
  return {
    table: parts.flatMap((part, index) => (index === 0 ? part.table : ['', ...part.table])),
    figures: Object.assign({}, ...parts.map(({ figures }) => figures)) as Record<string, number>,
    bars: parts.flatMap(({ bars }) => bars),
  }
}

async function ask<Answer>(file: URL, input: unknown): Promise<Answer> {
  await using child = new BenchChild(file, input)
  return await child.answer<Answer>()
}

async function measureCalls(chosen: readonly Line[], say: Say): Promise<Part> {
  await using http = await HttpServer.start()
  const measured = chosen.map((line) => ({ line, rounds: [] as CallsFigures[] }))
  for (let round = 0; round < Math.max(...chosen.map(({ rounds }) => rounds)); round += 1) {
    for (const { line, rounds } of measured.filter((each) => round < each.line.rounds)) {
      const { mode, rollouts, calls } = line
      const input: CallsInput = { mode, rollouts, calls, http: { url: http.url, pid: http.pid } }
      const figures = await ask<CallsFigures>(new URL('./calls.ts', import.meta.url), input)
      rounds.push(figures)
      say(
        `${mode}, ${rollouts} rollouts of ${calls} calls: ${perSecond(figures.calls, figures.wallMs).toFixed(1)} calls/s`,
      )
    }
  }
  const rows = [['calls', 'rollouts', 'calls each', 'calls/s', 'while open', 'CPU ms here', 'CPU ms in all']]
  const figures: Record<string, number> = {}
  for (const { line, rounds } of measured) {
    const { mode, rollouts, calls } = line
    const summary = summaryOf(rounds)
    for (const [key, value] of Object.entries(summary)) figures[`${mode}, ${rollouts}.${key}`] = value
    const { callsPerSecond, openCallsPerSecond, ownCpuMs, cpuMs } = summary
    const rates = [callsPerSecond, openCallsPerSecond].map((rate) => rate.toFixed(1))
    rows.push([mode, String(rollouts), String(calls), ...rates, ownCpuMs.toFixed(3), cpuMs.toFixed(2)])
  }
  const rate = (mode: CallMode): number => figures[`${mode}, ${few}.callsPerSecond`] ?? Number.NaN
  const ratio = rate('shared session') / rate('spawn per call')
  const bar = atLeast(
    `${few} rollouts: calls/s of a shared session, its start included, over spawn per call`,
    ratio,
    60,
  )
  const cpu = (mode: CallMode): number => figures[`${mode}, ${few}.ownCpuMs`] ?? Number.NaN
  const cpuRatio = cpu('shared session') / cpu('spawn per call')
  const cpuBar = atMost(`${few} rollouts: CPU here of a call in a shared session over spawn per call`, cpuRatio, 0.05)
  return { table: table(rows), figures, bars: [bar, cpuBar] }
}

function summaryOf(rounds: readonly CallsFigures[]) {
  const of = (pick: (figures: CallsFigures) => number): number => median(rounds.map(pick))
  return {
    callsPerSecond: of(({ calls, wallMs }) => perSecond(calls, wallMs)),
    openCallsPerSecond: of(({ calls, servingMs }) => perSecond(calls, servingMs)),
    ownCpuMs: of(({ ownCpuMs, calls }) => ownCpuMs / calls),
    cpuMs: of(({ cpuMs, calls }) => cpuMs / calls),
  }
}

/**
 * Servers that wait while they start, as those do that load something or ask somebody; and servers from npm, which compute while
 * they start, so that five of them share what the processors can give. The bare SDK shows what of it is the opening itself.
 */
async function measureStarts(rounds: number, say: Say): Promise<Part> {
  await using http = await HttpServer.start()
  const shared = { sharing: 'shared' } as const
  const delays = [400, 600, 800, 1_000, 1_200]
  const waiting = Object.fromEntries(delays.map((ms) => [`after-${ms}-ms`, { ...waitingServer(ms), ...shared }]))
  const fromNpm = {
    everything: { ...npmServers.everything, ...shared },
    filesystem: { ...npmServers.filesystem, ...shared },
    memory: { ...npmServers.memory, ...shared },
    playwright: { ...npmServers.playwright, ...shared },
    'everything-over-http': { url: http.url, ...shared },
  }
  const kinds: Readonly<Record<string, Omit<StartInput, 'rounds'>>> = {
    'that wait': { servers: waiting, alone: Object.keys(waiting).slice(-1) },
    'from npm': { servers: fromNpm, alone: Object.keys(fromNpm) },
  }
  const bars: Bar[] = []
  const rows = [
    ['five servers', 'together ms', 'slowest alone ms', 'ratio', 'bare SDK ms', `CPU ms of each of ${cores} cores`],
  ]
  const figures: Record<string, number> = {}
  for (const [kind, input] of Object.entries(kinds)) {
    const measured = await ask<StartFigures>(new URL('./start.ts', import.meta.url), {
      ...input,
      rounds,
    } satisfies StartInput)
    const { togetherMs, bareMs, serverCpuMs, aloneMs } = measured
    const slowestMs = Math.max(...Object.values(aloneMs))
    say(`five servers ${kind}: ${togetherMs.toFixed(0)} ms together, the slowest alone ${slowestMs.toFixed(0)} ms`)
    const ratio = togetherMs / slowestMs
    Object.assign(figures, { [`start ${kind}.togetherMs`]: togetherMs, [`start ${kind}.slowestMs`]: slowestMs })
    Object.assign(figures, { [`start ${kind}.bareMs`]: bareMs, [`start ${kind}.serverCpuMs`]: serverCpuMs })
    figures[`start ${kind}.overSlowest`] = ratio
    // As in `serve`: what the cores have to compute cannot take less than they take for it.
    const idealMs = Math.max(slowestMs, serverCpuMs / cores)
    const over = idealMs === slowestMs ? 'the slowest alone' : "the cores' time for them"
    bars.push(atMost(`five servers ${kind}: start-up over ${over}`, togetherMs / idealMs, 1.2))
    const cells = [togetherMs, slowestMs].map((ms) => ms.toFixed(0))
    rows.push([kind, ...cells, ratio.toFixed(2), bareMs.toFixed(0), (serverCpuMs / cores).toFixed(0)])
  }
  return { table: table(rows), figures, bars }
}

async function measureCost(isQuick: boolean, say: Say): Promise<Part> {
  const rows = [['calls on an open session', 'CPU ms here', 'calls/s']]
  const figures: Record<string, number> = {}
  for (const concurrency of [1, few, many]) {
    const input: CostInput = { concurrency, calls: isQuick ? 2_000 : 5_000, rounds: isQuick ? 3 : 7 }
    const { cpuMs, perSecond: rate } = await ask<CostFigures>(new URL('./cost.ts', import.meta.url), input)
    say(`${concurrency} at once on an open session: ${cpuMs.toFixed(3)} ms of CPU each`)
    Object.assign(figures, { [`open, ${concurrency}.cpuMs`]: cpuMs, [`open, ${concurrency}.callsPerSecond`]: rate })
    rows.push([`${concurrency} at once`, cpuMs.toFixed(3), rate.toFixed(0)])
  }
  return { table: table(rows), figures, bars: [] }
}

async function measureMemory(say: Say): Promise<Part> {
  await using child = new BenchChild(new URL('./memory.ts', import.meta.url), {
    rollouts: crowd,
  } satisfies MemoryInput)
  using memory = new TreeMemory(await child.answer<number>())
  const { wallMs, unfinished } = await child.answer<MemoryOutcome>()
  const { peakMb, processes } = memory
  const shown = `${crowd} rollouts at once with three shared servers: at most ${peakMb.toFixed(0)} MB in ${processes} processes, ${(wallMs / 1_000).toFixed(1)} s`
  say(shown)
  return {
    table: [shown],
    figures: { 'crowd.peakMb': peakMb, 'crowd.processes': processes, 'crowd.wallMs': wallMs },
    bars: [
      below(`${crowd} rollouts with three shared servers: MB in all processes`, peakMb, 700),
      atMost(`${crowd} rollouts with three shared servers: without all their answers`, unfinished, 0),
    ],
  }
}

function perSecond(count: number, ms: number): number {
  return (count / ms) * 1_000
}

function below(name: string, value: number, limit: number): Bar {
  return { name, value, bar: `below ${limit}`, holds: value < limit }
}
