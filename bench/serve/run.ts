/**
 * What `millrace serve` costs: single-turn rollouts against a backend that takes a second, asked for one by one over as many
 * connections as run at once; and one reply of 150,000 tokens with routed experts. Client, backend and server are three
 * processes.
 *
 * What is measured is a server that has been up for a while: it has run thousands of rollouts, so that V8 has compiled what it
 * will, and as many clients as the case says are busy from before the first reply that counts until after the last. Opening
 * their connections, the first second without a reply and the last, in which fewer and fewer wait, are left out.
 *
 * The ideal is what the same client needs for as many requests straight to the backend, or what the CPU time of all three
 * processes takes on this machine's cores if none is ever idle, whichever is longer. `no core` is how long the server's front was
 * ready to run and had to wait for others: where that is much, it says more about the machine than about the server.
 */
import { availableParallelism } from 'node:os'
import { request } from 'undici'
import { atMost, median, table, type Bar, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'
import type { ServeBackend } from './backend.ts'
import type { ClientFigures, ServeClientInput } from './client.ts'
import type { HugeReply } from './huge-client.ts'
import type { ServeFigures, ServeSubjectInput } from './subject.ts'

interface Case {
  readonly concurrency: number
  /** Requests of each client that count, on average. */
  readonly waves: number
  readonly rounds: number
}

const cases: readonly Case[] = [
  { concurrency: 256, waves: 16, rounds: 3 },
  { concurrency: 1_024, waves: 10, rounds: 3 },
  { concurrency: 4_096, waves: 6, rounds: 3 },
]

const quickCases: readonly Case[] = [
  { concurrency: 256, waves: 8, rounds: 1 },
  { concurrency: 1_024, waves: 3, rounds: 1 },
]

/** How long the backend takes for a reply: as measured, and while the server warms up. */
const replyMs = 1_000
const warmUpReplyMs = 50
/** After 7,000 rollouts V8 was still compiling: its threads took 18% of the CPU. */
const warmUpRollouts = 16_384
const warmUpClients = 256

const rolloutBodies = Array.from({ length: 997 }, (_, index) =>
  JSON.stringify({ task: { left: index, right: index * 7 } }),
)
const chatBodies = Array.from({ length: 997 }, (_, index) => {
  const content = `What is ${index} * ${index * 7} + 1? Reply with \`Answer: <number>\`.`
  return JSON.stringify({ model: 'bench', messages: [{ role: 'user', content }] })
})

interface Round {
  readonly floor: ClientFigures
  readonly client: ClientFigures
  readonly server: ServeFigures
  readonly idealMs: number
}

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  await using backend = new BenchChild(new URL('./backend.ts', import.meta.url), {})
  const addresses = await backend.answer<ServeBackend>()
  const rows = [
    [
      'at once',
      'CPU ms/rollout',
      'front CPU',
      'wall s',
      'over ideal',
      'over floor',
      'no core s',
      'p99 ms',
      'lag p99 ms',
    ],
  ]
  const figures: Record<string, number> = {}
  const bars: Bar[] = []
  for (const each of isQuick ? quickCases : cases) {
    const name = `c${each.concurrency}`
    const requests = each.concurrency * each.waves
    say(`${name}: ${requests} rollouts, ${each.rounds} rounds of floor and millrace`)
    const rounds: Round[] = []
    for (let round = 0; round < each.rounds; round += 1) {
      rounds.push(await runRound(addresses, each.concurrency, requests))
      say(`  round ${round + 1}: ${(rounds.at(-1)!.server.cpuMs / requests).toFixed(3)} ms of CPU per rollout`)
    }
    const of = (pick: (round: Round) => number): number => median(rounds.map(pick))
    const measured = {
      cpuMsPerRollout: of(({ server }) => server.cpuMs / requests),
      // The floor's client sends as many requests straight to the backend and does nothing else.
      cpuOverClient: of(({ server, floor }) => server.cpuMs / floor.cpuMs),
      frontCpuMsPerRollout: of(({ server }) => server.frontCpuMs / requests),
      wallMs: of(({ client }) => client.wallMs),
      wallOverIdeal: of(({ client, idealMs }) => client.wallMs / idealMs),
      wallOverFloor: of(({ client, floor }) => client.wallMs / floor.wallMs),
      coreWaitMs: of(({ server }) => server.coreWaitMs),
      p99Ms: of(({ client }) => client.p99Ms),
      lagP99Ms: of(({ server }) => server.lagP99Ms),
    }
    for (const [key, value] of Object.entries(measured)) figures[`${name}.${key}`] = value
    rows.push([
      String(each.concurrency),
      measured.cpuMsPerRollout.toFixed(3),
      measured.frontCpuMsPerRollout.toFixed(3),
      (measured.wallMs / 1000).toFixed(2),
      measured.wallOverIdeal.toFixed(2),
      measured.wallOverFloor.toFixed(2),
      (measured.coreWaitMs / 1000).toFixed(1),
      measured.p99Ms.toFixed(0),
      measured.lagP99Ms.toFixed(1),
    ])
    const failed = rounds.reduce((sum, { floor, client }) => sum + floor.failed + client.failed, 0)
    bars.push(
      atMost(`${name}: requests that failed`, failed, 0),
      atMost(`${name}: server CPU over that of the bare client`, measured.cpuOverClient, 4),
      atMost(`${name}: wall time over the ideal`, measured.wallOverIdeal, 1.2),
    )
  }
  const huge = await hugeReply(addresses, isQuick ? 3 : 7, say)
  Object.assign(figures, huge.figures)
  return { table: [...table(rows), '', ...huge.table], figures, bars: [...bars, ...huge.bars] }
}

async function runRound(backend: ServeBackend, concurrency: number, requests: number): Promise<Round> {
  // Until the clients are as far apart as the backend's replies.
  const busy = { concurrency, requests, warmUp: 2 * concurrency }
  const chat = { origin: new URL(backend.url).origin, path: '/v1/chat/completions', bodies: chatBodies }
  await answerAfter(backend, replyMs)
  const { client: floor } = await load({ ...chat, ...busy }, lookAway)
  const input: ServeSubjectInput = { backend: backend.url, concurrency }
  await using subject = new BenchChild(new URL('./subject.ts', import.meta.url), input)
  const { url, control } = await subject.answer<{ url: string; control: string }>()
  const rollouts = { origin: url, path: '/v1/rollouts', bodies: rolloutBodies }
  await answerAfter(backend, warmUpReplyMs)
  await load({ ...rollouts, concurrency: warmUpClients, requests: warmUpRollouts, warmUp: 1 }, lookAway)
  await answerAfter(backend, replyMs)
  const measured = await load({ ...rollouts, ...busy }, async (event) => {
    const [server, backendCpuMs] = await Promise.all([
      get<ServeFigures>(`${control}/${event}`),
      get<number>(backend.cpuUrl),
    ])
    return { server, backendCpuMs }
  })
  const { client, atStart, atStop } = measured
  const { server } = atStop
  const backendCpuMs = atStop.backendCpuMs - atStart.backendCpuMs
  const cpuBoundMs = (client.cpuMs + server.cpuMs + backendCpuMs) / availableParallelism()
  return { floor, client, server, idealMs: Math.max(floor.wallMs, cpuBoundMs) }
}

/** Loads a server, and looks at it when the measurement begins and when it ends. */
async function load<Look>(
  input: ServeClientInput,
  look: (event: 'start' | 'stop') => Promise<Look>,
): Promise<{ readonly client: ClientFigures; readonly atStart: Look; readonly atStop: Look }> {
  await using child = new BenchChild(new URL('./client.ts', import.meta.url), input)
  await child.answer()
  const atStart = await look('start')
  const client = await child.answer<ClientFigures>()
  return { client, atStart, atStop: await look('stop') }
}

async function lookAway(): Promise<void> {}

async function answerAfter({ settingsUrl }: ServeBackend, ttftMs: number): Promise<void> {
  const headers = { 'content-type': 'application/json' }
  const { body } = await request(settingsUrl, { method: 'POST', headers, body: JSON.stringify({ ttftMs }) })
  await body.dump()
}

/** Rollouts run in a worker, as on any server with replies of this size. */
async function hugeReply(backend: ServeBackend, rounds: number, say: (line: string) => void) {
  const input: ServeSubjectInput = { backend: backend.hugeUrl, concurrency: 8, workers: 1, captureTokens: true }
  await using subject = new BenchChild(new URL('./subject.ts', import.meta.url), input)
  const { url, control } = await subject.answer<{ url: string; control: string }>()
  const posted: HugeReply<ServeFigures>[] = []
  const read: HugeReply<ServeFigures>[] = []
  // The first round only warms up.
  for (let round = 0; round <= rounds; round += 1) {
    await using client = new BenchChild(new URL('./huge-client.ts', import.meta.url), { origin: url, control })
    const answers = await client.answer<Record<'posted' | 'read', HugeReply<ServeFigures>>>()
    const [turn = 0, later = 0] = [answers.posted, answers.read].map(({ figures }) => figures.longestTurnMs)
    say(`huge reply, round ${round}: longest turn ${turn.toFixed(1)} ms, read later ${later.toFixed(1)} ms`)
    if (round === 0) continue
    posted.push(answers.posted)
    read.push(answers.read)
  }
  const rows = [['150k tokens with routed experts', 'MB', 'reply ms', 'longest turn ms', 'front CPU ms']]
  const figures: Record<string, number> = {}
  const bars: Bar[] = []
  for (const [name, replies] of [
    ['POST', posted],
    ['GET', read],
  ] as const) {
    const of = (pick: (reply: HugeReply<ServeFigures>) => number): number => median(replies.map(pick))
    const longestTurnMs = of((reply) => reply.figures.longestTurnMs ?? Number.NaN)
    const frontCpuMs = of((reply) => reply.figures.frontCpuMs)
    const [bytes, wallMs] = [of((reply) => reply.bytes), of((reply) => reply.wallMs)]
    rows.push([name, (bytes / 1e6).toFixed(1), wallMs.toFixed(0), longestTurnMs.toFixed(2), frontCpuMs.toFixed(1)])
    Object.assign(figures, {
      [`huge.${name}.bytes`]: bytes,
      [`huge.${name}.wallMs`]: wallMs,
      [`huge.${name}.longestTurnMs`]: longestTurnMs,
      [`huge.${name}.frontCpuMs`]: frontCpuMs,
    })
    bars.push(
      atMost(`huge reply, ${name}: longest turn of the main loop, share of the reply`, longestTurnMs / wallMs, 0.02),
    )
  }
  return { table: table(rows), figures, bars }
}

async function get<Answer>(url: string): Promise<Answer> {
  const { body } = await request(url)
  return (await body.json()) as Answer
}
