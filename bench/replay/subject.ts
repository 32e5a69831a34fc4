/** One step of bench/replay/run.ts in a process of its own; answers with its figures. */
import { join } from 'node:path'
import { loadEnvironment } from '../../src/env/index.ts'
import { evaluate, replayRun, rescoreRun } from '../../src/eval/index.ts'
import { RunReader } from '../../src/store/index.ts'

export interface ReplayInput {
  readonly step: 'run' | 'rescore' | 'replay'
  readonly root: string
  readonly tasks: number
  readonly attempts: number
  readonly replays: number
  readonly warmUp: number
}

export interface ReplayFigures {
  readonly rollouts: number
  readonly different: number
  readonly wallMs: number
  readonly cpuMs: number
  readonly peakMemoryMb: number
}

const input = JSON.parse(process.argv[2] ?? '') as ReplayInput
const name = 'arithmetic'

const steps: Readonly<Record<ReplayInput['step'], () => Promise<Pick<ReplayFigures, 'rollouts' | 'different'>>>> = {
  async run() {
    const { rollouts } = await evaluate({
      environment: name,
      options: { count: input.tasks },
      model: { name: 'sim', simulator: { skill: 0.8, ttftMs: 120, tokensPerSecond: 400 } },
      attempts: input.attempts,
      concurrency: 64,
      seed: 1,
      run: { root: input.root, name },
    }).summary()
    return { rollouts, different: 0 }
  },
  rescore: () => rescore(Number.POSITIVE_INFINITY),
  async replay() {
    using reader = RunReader.open(join(input.root, name))
    let rollouts = 0
    let different = 0
    for await (const { verdict } of replayRun(reader)) {
      rollouts += 1
      if (verdict !== 'identical') different += 1
      if (rollouts === input.replays) break
    }
    return { rollouts, different }
  },
}

/** The first so many rollouts of the run. */
async function rescore(count: number): Promise<{ rollouts: number; different: number }> {
  using reader = RunReader.open(join(input.root, name))
  const rescoring = await rescoreRun(reader)
  let rollouts = 0
  for await (const _rollout of rescoring) {
    rollouts += 1
    if (rollouts === count) break
  }
  return { rollouts, different: rescoring.summary().changed }
}

// Not part of any figure: loading modules, and the time until V8 has compiled what a step needs.
await loadEnvironment(name)
if (input.step === 'rescore') await rescore(input.warmUp)
const startedAt = performance.now()
const cpuBefore = process.cpuUsage()
const found = await steps[input.step]()
const { user, system } = process.cpuUsage(cpuBefore)
const figures: ReplayFigures = {
  ...found,
  wallMs: performance.now() - startedAt,
  cpuMs: (user + system) / 1000,
  peakMemoryMb: process.resourceUsage().maxRSS / 1024,
}
console.log(JSON.stringify(figures))
