import { BenchChild } from '../shared/bench-child.ts'
import { atMost, type Bar, median, table } from '../shared/benchmark.ts'
import type { MockModel } from '../shared/mock-model.ts'
import { cpuMsOf } from '../shared/process-usage.ts'
import type { SubjectFigures, SubjectInput } from '../rollout/subject.ts'
import type { AgentClientFigures, AgentClientInput } from './client.ts'
import type { WireSubjectInput } from './wire-subject.ts'

/** At once, in both. */
const concurrencies = [1, 64, 256]
const most = 3

interface Cost {
  readonly wire: number
  readonly evaluate: number
}

/** CPU of the whole process for a rollout of two turns and one tool: through `POST /run`, and through `evaluate()`. */
export async function wireCost(isQuick: boolean, say: (line: string) => void) {
  await using mock = new BenchChild(new URL('../shared/mock-model.ts', import.meta.url), {})
  const { url: model } = await mock.answer<MockModel>()
  const rows = [['a rollout of two turns and one tool, at once', 'POST /run, CPU ms', 'evaluate(), CPU ms', 'ratio']]
  const figures: Record<string, number> = {}
  const bars: Bar[] = []
  for (const concurrency of isQuick ? [64] : concurrencies) {
    const rounds: Cost[] = []
    for (let round = 0; round < (isQuick ? 1 : 3); round += 1) {
      rounds.push({
        wire: await throughWire(model, concurrency, isQuick),
        evaluate: await throughEvaluate(model, concurrency, isQuick),
      })
    }
    const [wire, evaluate] = [median(rounds.map((each) => each.wire)), median(rounds.map((each) => each.evaluate))]
    const ratio = wire / evaluate
    say(`POST /run, ${concurrency} at once: ${ratio.toFixed(2)} times the CPU of evaluate()`)
    rows.push([String(concurrency), wire.toFixed(3), evaluate.toFixed(3), ratio.toFixed(2)])
    Object.assign(figures, {
      [`wire.c${concurrency}.cpuMsPerRollout`]: wire,
      [`wire.c${concurrency}.evaluateCpuMsPerRollout`]: evaluate,
      [`wire.c${concurrency}.ratio`]: ratio,
    })
    bars.push(atMost(`POST /run, ${concurrency} at once: CPU over that of evaluate()`, ratio, most))
  }
  return { table: table(rows), figures, bars }
}

async function throughWire(model: string, concurrency: number, isQuick: boolean): Promise<number> {
  const input: WireSubjectInput = { model, concurrency }
  await using subject = new BenchChild(new URL('./wire-subject.ts', import.meta.url), input)
  const { url } = await subject.answer<{ url: string }>()
  const time = isQuick ? { warmUpMs: 1_500, measureMs: 1_500 } : { warmUpMs: 5_000, measureMs: 4_000 }
  const load: AgentClientInput = { url, concurrency, isRow: true, ...time }
  await using client = new BenchChild(new URL('./client.ts', import.meta.url), load)
  await client.answer()
  const before = cpuMsOf(subject.pid)
  const { rollouts, failed, problem } = await client.answer<AgentClientFigures>()
  if (failed > 0) throw new Error(`POST /run failed ${failed} times: ${problem}`)
  return (cpuMsOf(subject.pid) - before) / rollouts
}

async function throughEvaluate(model: string, concurrency: number, isQuick: boolean): Promise<number> {
  const each = concurrency === 1 ? 1 : 5
  const counts = { rollouts: (isQuick ? 500 : 2_000) * each, warmUp: (isQuick ? 500 : 1_500) * each }
  const input: SubjectInput = { kind: 'millrace', url: model, concurrency, bodies: '', ...counts }
  await using subject = new BenchChild(new URL('../rollout/subject.ts', import.meta.url), input)
  const { cpuMs, rollouts, unfinished } = await subject.answer<SubjectFigures>()
  if (unfinished > 0) throw new Error(`${unfinished} rollouts of evaluate() did not complete`)
  return cpuMs / rollouts
}
