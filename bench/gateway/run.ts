/**
 * What the recording gateway costs: chat completions, whole and as streams of 200 chunks, through `millrace gateway` in sessions
 * and as a bare proxy, through Portkey's gateway from npm, and straight to the backend, in turns. Backend, client and each gateway
 * are processes of their own; the gateways may open 4,096 files. The CPU is that of the whole gateway process, recording,
 * journal and request log included. Linux only: there a process can be watched from outside.
 *
 * The latency of a reply is from request to end, that of a stream from when the backend sent a chunk until the client has it;
 * what is added is the difference to the same load sent straight to the backend in the same round.
 */
import { atMost, median, table, type Bar, type Benchmark } from '../shared/benchmark.ts'
import type { LoadFigures } from './client.ts'
import { GatewayLab, type Asked, type Shape } from './lab.ts'

interface Line extends Shape {
  readonly name: string
  readonly rounds: number
  readonly asked: readonly Asked[]
}

/** Medians over the rounds of one line. */
interface Summary {
  readonly cpuMs: number
  readonly addedP50Ms: number
  readonly addedP99Ms: number
  readonly firstMs: number
  readonly worstFirstShare: number
  readonly perSecond: number
  readonly failed: number
}

type Summaries = ReadonlyMap<Asked, Summary>

const everybody: readonly Asked[] = ['direct', 'proxy', 'fields', 'recording', 'portkey']
const spread = [10, 100, 1_000] as const
const crowded = 64

const json = (concurrency: number, requests: number, rounds: number): Line => {
  const name = `json, ${concurrency} at once`
  return { name, concurrency, requests, rounds, turns: 10, stream: false, asked: everybody }
}
const stream = (concurrency: number, requests: number, rounds: number): Line => {
  const name = `stream, ${concurrency} at once`
  return { name, concurrency, requests, rounds, turns: 1, stream: true, asked: everybody }
}
const turns = (count: number, requests: number, rounds: number): Line => {
  const name = `json, ${crowded} at once, ${count} turn${count === 1 ? '' : 's'}`
  return { name, concurrency: crowded, requests, rounds, turns: count, stream: false, asked: everybody }
}
const inSessions = (sessions: number, requests: number, rounds: number): Line => {
  const name = `json, ${crowded} at once, ${sessions} sessions`
  return { name, concurrency: crowded, requests, rounds, turns: 10, stream: false, sessions, asked: ['recording'] }
}

/** With fewer, a figure is about V8's compiler: one that records settles after some 20,000 requests, and shares most code with the proxy. */
const warmUps = 12_000

const lines: readonly Line[] = [
  json(1, 2_000, 5),
  json(crowded, 6_000, 5),
  json(256, 6_000, 3),
  json(1_024, 8_192, 3),
  turns(1, 6_000, 3),
  turns(50, 3_000, 3),
  ...spread.map((sessions) => inSessions(sessions, 6_000, 3)),
  stream(1, 10, 3),
  stream(crowded, 192, 3),
  stream(256, 512, 2),
  stream(1_024, 1_024, 1),
]

/** One at a time comes when the rest has been compiled: so few requests would not do it. */
const quickLines: readonly Line[] = [
  json(crowded, 1_920, 2),
  inSessions(10, 1_920, 1),
  inSessions(1_000, 1_920, 1),
  json(1, 400, 1),
  stream(crowded, 64, 1),
]

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  if (process.platform !== 'linux') throw new Error('this benchmark needs Linux, for /proc')
  await using lab = await GatewayLab.open()
  // Everybody's code is compiled before the first figure.
  for (const asked of everybody) {
    say(`warming up: ${asked}`)
    await lab.run(asked, { concurrency: crowded, requests: warmUps, turns: 10, stream: false })
  }
  const results = new Map<Line, Summaries>()
  for (const line of isQuick ? quickLines : lines) results.set(line, await measure(lab, line, say))
  const rows = [['', 'asked', 'CPU ms', 'added p50 ms', 'added p99 ms', 'first ms', 'per s', 'failed']]
  const figures: Record<string, number> = {}
  for (const [{ name }, summaries] of results) {
    for (const [asked, summary] of summaries) {
      rows.push([name, ...rowOf(asked, summary)])
      for (const [key, value] of Object.entries(summary)) figures[`${name}.${asked}.${key}`] = value
    }
  }
  const { millrace, portkey } = lab.memoryMb()
  Object.assign(figures, { 'millrace.memoryMb': millrace.now, 'millrace.peakMb': millrace.peak })
  Object.assign(figures, { 'portkey.memoryMb': portkey.now, 'portkey.peakMb': portkey.peak })
  const memory = `resident at the end, and at most: millrace ${mb(millrace)}, portkey ${mb(portkey)}`
  return { table: [...table(rows), '', memory], figures, bars: [...results].flatMap(barsOf).concat(flatness(results)) }
}

/** Whoever is first in a round is first in turn, so that nobody always follows the same one. */
async function measure(lab: GatewayLab, line: Line, say: (line: string) => void): Promise<Summaries> {
  const { name, asked, rounds, requests } = line
  say(`${name}: ${rounds} round${rounds === 1 ? '' : 's'} of ${requests} requests`)
  const measured = asked.map((each) => ({ asked: each, rounds: [] as LoadFigures[] }))
  for (let round = 0; round < rounds; round += 1) {
    for (let turn = 0; turn < measured.length; turn += 1) {
      const each = measured[(turn + round) % measured.length]
      if (!each) continue
      const figures = await lab.run(each.asked, line)
      each.rounds.push(figures)
      const problem = figures.problem === undefined ? '' : `; ${figures.failed} failed: ${figures.problem}`
      say(
        `  ${each.asked}: ${(figures.cpuMs / requests).toFixed(3)} ms of CPU, p50 ${figures.p50Ms.toFixed(2)} ms${problem}`,
      )
    }
  }
  const direct = measured.find((each) => each.asked === 'direct')?.rounds
  return new Map(measured.map((each) => [each.asked, summaryOf(each.rounds, direct, requests)]))
}

function summaryOf(
  rounds: readonly LoadFigures[],
  direct: readonly LoadFigures[] | undefined,
  requests: number,
): Summary {
  const of = (pick: (figures: LoadFigures, floor: LoadFigures | undefined) => number): number =>
    median(rounds.map((figures, round) => pick(figures, direct?.[round])))
  return {
    cpuMs: of(({ cpuMs }) => cpuMs / requests),
    addedP50Ms: of(({ p50Ms }, floor) => p50Ms - (floor?.p50Ms ?? Number.NaN)),
    addedP99Ms: of(({ p99Ms }, floor) => p99Ms - (floor?.p99Ms ?? Number.NaN)),
    firstMs: of(({ firstP50Ms }) => firstP50Ms),
    worstFirstShare: Math.max(...rounds.map(({ worstFirstShare }) => worstFirstShare)),
    perSecond: of(({ wallMs }) => (requests / wallMs) * 1000),
    failed: rounds.reduce((sum, { failed }) => sum + failed, 0),
  }
}

function rowOf(asked: Asked, { cpuMs, addedP50Ms, addedP99Ms, firstMs, perSecond, failed }: Summary): string[] {
  const isFloor = asked === 'direct'
  const added = (ms: number): string => (isFloor || Number.isNaN(ms) ? '' : ms.toFixed(2))
  const cpu = isFloor ? '' : cpuMs.toFixed(3)
  return [asked, cpu, added(addedP50Ms), added(addedP99Ms), firstMs.toFixed(2), perSecond.toFixed(0), String(failed)]
}

function barsOf([line, summaries]: readonly [Line, Summaries]): Bar[] {
  const { name, concurrency } = line
  const failed = ['proxy', 'fields', 'recording'] as const
  const bars = [
    atMost(
      `${name}: requests that failed`,
      failed.reduce((sum, asked) => sum + (summaries.get(asked)?.failed ?? 0), 0),
      0,
    ),
  ]
  const recording = summaries.get('recording')
  const fields = summaries.get('fields')
  const portkey = summaries.get('portkey')
  if (!recording || !fields || !portkey) return bars
  if (concurrency === 1) {
    bars.push(atMost(`${name}: added p50 over Portkey's`, recording.addedP50Ms / portkey.addedP50Ms, 1))
  } else {
    bars.push(
      atMost(`${name}: CPU of recording over the proxy's with token fields`, recording.cpuMs / fields.cpuMs, 1.3),
    )
  }
  const overPortkey = recording.cpuMs / portkey.cpuMs
  if (!line.stream) return [...bars, atMost(`${name}: CPU over Portkey's`, overPortkey, 0.45)]
  return [
    ...bars,
    // Who carries no tokens writes each chunk on as it came; a stream that is recorded is at least not dearer.
    atMost(`${name}: CPU over Portkey's`, overPortkey, 1),
    // Buffered whole, it would be 1; a chunk of 200 is 0.005 of a stream.
    atMost(`${name}: share of a stream before its first chunk, at worst`, recording.worstFirstShare, 0.5),
  ]
}

/** What a request costs must not depend on how many sessions there are. */
function flatness(results: ReadonlyMap<Line, Summaries>): Bar[] {
  const costs = [...results].flatMap(([{ sessions }, summaries]) =>
    sessions === undefined ? [] : [summaries.get('recording')?.cpuMs ?? Number.NaN],
  )
  return [
    atMost('CPU per request, dearest over cheapest number of sessions', Math.max(...costs) / Math.min(...costs), 1.3),
  ]
}

function mb({ now, peak }: { readonly now: number; readonly peak: number }): string {
  return `${now.toFixed(0)} and ${peak.toFixed(0)} MB`
}
