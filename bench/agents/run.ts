/**
 * Agents behind `POST /run`: the rollout in the handler, and the same handler made to call itself over HTTP for every rollout,
 * as the agents of NeMo Gym do. Client, mock model and the two servers are processes of their own; the servers take turns.
 */
import { readdirSync } from 'node:fs'
import { request } from 'undici'
import { BenchChild } from '../shared/bench-child.ts'
import { atLeast, atMost, median, table, type Bar, type Benchmark } from '../shared/benchmark.ts'
import type { MockModel } from '../shared/mock-model.ts'
import { cpuMsOf } from '../shared/process-usage.ts'
import type { AgentClientFigures, AgentClientInput } from './client.ts'
import type { BenchAgent } from './environment.ts'
import type { AgentSubjectInput } from './subject.ts'
import { wireCost } from './wire-cost.ts'

const kinds = ['direct', 'self'] as const
type Kind = (typeof kinds)[number]

const names: Readonly<Record<Kind, string>> = { direct: 'in process', self: 'calls itself' }

interface Scale {
  readonly agents: readonly BenchAgent[]
  readonly delaysMs: readonly number[]
  readonly concurrencies: readonly number[]
  readonly rounds: number
  /** With a model that takes no time: what the bars look at. */
  readonly roundsAtOnce: number
  /** Of each server, once. */
  readonly firstMs: number
  readonly warmUpMs: number
  readonly measureMs: number
}

const full: Scale = {
  agents: ['toolLoop', 'refine'],
  delaysMs: [0, 10, 100],
  concurrencies: [1, 64, 256, 1_024],
  rounds: 3,
  roundsAtOnce: 5,
  firstMs: 5_000,
  warmUpMs: 800,
  measureMs: 2_000,
}
const quick: Scale = {
  ...full,
  delaysMs: [0],
  concurrencies: [64, 1_024],
  roundsAtOnce: 1,
  firstMs: 1_500,
  measureMs: 1_500,
}

/** Enough for 1,024 clients and as many calls to itself with both their ends. */
const roomyDescriptors = 8_192
const scarceDescriptors = 1_400
const most = 1_024
const watchDescriptorsMs = 50

interface Figures extends AgentClientFigures {
  readonly cpuMs: number
  readonly peakDescriptors: number
}

interface Server {
  readonly child: BenchChild
  readonly url: string
}

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const scale = isQuick ? quick : full
  const rows = [['agent, model ms, at once', '', 'rollouts/s', 'p50 ms', 'CPU ms/rollout', 'descriptors', 'failed']]
  const figures: Record<string, number> = {}
  const bars: Bar[] = []
  const failedWithRoom: Record<Kind, number> = { direct: 0, self: 0 }
  for (const agent of scale.agents) {
    await using lab = await AgentLab.open(agent, roomyDescriptors)
    say(`${agent}: warming up`)
    for (const kind of kinds) await lab.measure(kind, 64, { warmUpMs: scale.firstMs, measureMs: 500 })
    for (const delayMs of scale.delaysMs) {
      await lab.setDelay(delayMs)
      for (const concurrency of scale.concurrencies) {
        const measured: Record<Kind, Figures[]> = { direct: [], self: [] }
        const rounds = delayMs === 0 ? scale.roundsAtOnce : scale.rounds
        for (let round = 0; round < rounds; round += 1) {
          // Each is the first as often as the other.
          const order = round % 2 === 0 ? kinds : kinds.toReversed()
          for (const kind of order) measured[kind].push(await lab.measure(kind, concurrency, scale))
        }
        const name = `${agent}.${delayMs}ms.c${concurrency}`
        for (const kind of kinds) {
          const found = mediansOf(measured[kind])
          for (const [key, value] of Object.entries(found)) figures[`${name}.${kind}.${key}`] = value
          rows.push([kind === 'direct' ? `${agent}, ${delayMs}, ${concurrency}` : '', names[kind], ...shown(found)])
        }
        // Of each round: the machine may have been busy with something else in one of them.
        const ratio = median(measured.direct.map((each, round) => each.rollouts / measured.self[round]!.rollouts))
        figures[`${name}.ratio`] = ratio
        say(`${name}: ${ratio.toFixed(2)} times the throughput of the one that calls itself`)
        if (delayMs === 0 && concurrency > 1) {
          bars.push(
            atLeast(`${agent}, 0 ms, ${concurrency} at once: rollouts/s over those of calling itself`, ratio, 1.5),
          )
        }
        for (const kind of kinds) failedWithRoom[kind] += mediansOf(measured[kind]).failed
      }
    }
  }
  bars.push(atMost('rollouts that failed in process', failedWithRoom.direct, 0))
  // A baseline that fails would make the ratios look better.
  bars.push(atMost('rollouts that failed otherwise, with enough descriptors', failedWithRoom.self, 0))
  for (const agent of scale.agents) {
    await using lab = await AgentLab.open(agent, scarceDescriptors)
    const name = `${agent}, ${most} at once, ulimit -n ${scarceDescriptors}`
    say(name)
    for (const kind of kinds) {
      const found = mediansOf([await lab.measure(kind, most, scale)])
      rows.push([kind === 'direct' ? name : '', names[kind], ...shown(found)])
      for (const [key, value] of Object.entries(found)) figures[`${agent}.scarce.${kind}.${key}`] = value
      const bar =
        kind === 'direct'
          ? atMost(`${name}: failed in process`, found.failed, 0)
          : atLeast(`${name}: failed otherwise`, found.failed, 1)
      bars.push(bar)
    }
  }
  const wire = await wireCost(isQuick, say)
  Object.assign(figures, wire.figures)
  return { table: [...table(rows), '', ...wire.table], figures, bars: [...bars, ...wire.bars] }
}

/** A mock model, and the two servers of one agent. */
class AgentLab implements AsyncDisposable {
  readonly #model: MockModel
  readonly #servers: Readonly<Record<Kind, Server>>
  readonly #owned: AsyncDisposableStack

  private constructor(model: MockModel, servers: Readonly<Record<Kind, Server>>, owned: AsyncDisposableStack) {
    this.#model = model
    this.#servers = servers
    this.#owned = owned
  }

  static async open(agent: BenchAgent, maxDescriptors: number): Promise<AgentLab> {
    await using owned = new AsyncDisposableStack()
    const model = await owned
      .use(new BenchChild(new URL('../shared/mock-model.ts', import.meta.url), {}))
      .answer<MockModel>()
    const start = async (kind: Kind): Promise<Server> => {
      const input: AgentSubjectInput = { kind, agent, model: model.url, concurrency: most }
      const child = owned.use(new BenchChild(new URL('./subject.ts', import.meta.url), input, { maxDescriptors }))
      return { child, ...(await child.answer<{ url: string }>()) }
    }
    return new AgentLab(model, { direct: await start('direct'), self: await start('self') }, owned.move())
  }

  async setDelay(delayMs: number): Promise<void> {
    const { body } = await request(this.#model.controlUrl, { method: 'POST', body: JSON.stringify({ delayMs }) })
    await body.dump()
  }

  async measure(
    kind: Kind,
    concurrency: number,
    { warmUpMs, measureMs }: Pick<AgentClientInput, 'warmUpMs' | 'measureMs'>,
  ): Promise<Figures> {
    const { url, child } = this.#servers[kind]
    const input: AgentClientInput = { url, concurrency, warmUpMs, measureMs }
    using descriptors = new DescriptorWatch(child.pid)
    await using client = new BenchChild(new URL('./client.ts', import.meta.url), input)
    await client.answer()
    const cpuBefore = cpuMsOf(child.pid)
    const figures = await client.answer<AgentClientFigures>()
    return { ...figures, cpuMs: cpuMsOf(child.pid) - cpuBefore, peakDescriptors: descriptors.peak }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}

/** The most descriptors a process had whenever this looked. */
class DescriptorWatch implements Disposable {
  peak = 0
  readonly #timer: NodeJS.Timeout

  constructor(pid: number) {
    this.#timer = setInterval(() => {
      this.peak = Math.max(this.peak, readdirSync(`/proc/${pid}/fd`).length)
    }, watchDescriptorsMs)
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }
}

interface Medians {
  readonly perSecond: number
  readonly p50Ms: number
  readonly cpuMsPerRollout: number
  /** The most of all rounds. */
  readonly peakDescriptors: number
  /** Of all rounds. */
  readonly failed: number
}

function mediansOf(rounds: readonly Figures[]): Medians {
  const of = (pick: (figures: Figures) => number): number => median(rounds.map(pick))
  return {
    perSecond: of(({ rollouts, wallMs }) => (rollouts / wallMs) * 1_000),
    p50Ms: of(({ p50Ms }) => p50Ms),
    cpuMsPerRollout: of(({ cpuMs, rollouts }) => cpuMs / rollouts),
    peakDescriptors: Math.max(...rounds.map(({ peakDescriptors }) => peakDescriptors)),
    failed: rounds.reduce((sum, { failed }) => sum + failed, 0),
  }
}

function shown({ perSecond, p50Ms, cpuMsPerRollout, peakDescriptors, failed }: Medians): string[] {
  return [perSecond.toFixed(0), p50Ms.toFixed(1), cpuMsPerRollout.toFixed(3), String(peakDescriptors), String(failed)]
}
