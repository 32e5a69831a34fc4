import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'
import { roundedSum } from '../../kit/index.ts'
import { addUsage, ToolFaults } from '../../rollout/index.ts'
import {
  emptyUsage,
  type Outcome,
  outcomeNames,
  outcomes,
  type RolloutRecord,
  type RolloutTiming,
  type Usage,
} from '../../schema/index.ts'
import type { RolloutSummary } from '../summary.ts'
import { ClusteredMean, isBinaryReward, type ScoreEstimate } from './clustered-mean.ts'
import { passAtK, passHatK, reportedKs } from './pass-at-k.ts'

export type EndedRollout = Omit<
  RolloutRecord,
  'id' | 'environment' | 'model' | 'sample' | 'attempt' | 'truncated' | 'answer' | 'children' | 'messages'
>

interface OpenTask {
  ended: number
  passed: number
  sum: number
  count: number
  isBinary: boolean
}

interface PassSums {
  readonly k: number
  atK: number
  hatK: number
}

type DurationName = keyof RolloutSummary['durations']

const maxJudgeModels = 20

/** Longer durations count as ten days. */
const maxDurationMicros = 10 * 86_400_000_000

const timingFields = {
  wall: 'wallMs',
  model: 'modelMs',
  tools: 'toolMs',
  reward: 'rewardMs',
  wait: 'waitMs',
} as const satisfies Record<DurationName, keyof RolloutTiming>
const durationNames = Object.keys(timingFields) as DurationName[]

function byDuration<Value>(make: (name: DurationName) => Value): Record<DurationName, Value> {
  return Object.fromEntries(durationNames.map((name) => [name, make(name)])) as Record<DurationName, Value>
}

/**
 * Turns rollouts, as they end, into the figures of a summary. A task is held open until all its attempts have ended; as many can
 * be open as rollouts run at once. In a server's run no task is known to have ended: all stay open, and only pass@1 is reported.
 */
export class SummaryAccumulator {
  readonly #attemptsPerTask: number
  readonly #isServed: boolean
  readonly #passThreshold: number
  readonly #open = new Map<number, OpenTask>()
  readonly #mean = new ClusteredMean()
  readonly #pass: readonly PassSums[]
  readonly #outcomes = Object.fromEntries(outcomeNames.map((name) => [name, 0])) as Record<Outcome, number>
  readonly #reasons: Partial<Record<Outcome, string>> = {}
  /** By server; as many as the environment has. */
  readonly #missing = new Map<string, { readonly server: string; rollouts: number; readonly cause: string }>()
  readonly #toolFaults = new ToolFaults()
  readonly #rewards = new NamedMeans()
  readonly #metrics = new NamedMeans()
  readonly #usage = emptyUsage()
  readonly #judgeUsage = emptyUsage()
  readonly #judgeModels = new Set<string>()
  readonly #durations = byDuration(() => createHistogram({ highest: maxDurationMicros, figures: 2 }))
  #passTasks = 0
  #foldedTasks = 0
  #rollouts = 0
  #scored = 0
  #voided = 0
  #toolCalls = 0
  #toolErrors = 0
  #cost = 0
  #costUnknown = 0
  #priced = 0

  constructor(options: {
    readonly attemptsPerTask: number
    readonly passThreshold: number
    /** Whether tasks came with requests, each with attempts of its own. */
    readonly isServed?: boolean
  }) {
    this.#attemptsPerTask = options.attemptsPerTask
    this.#isServed = options.isServed ?? false
    this.#passThreshold = options.passThreshold
    this.#pass = reportedKs(this.#isServed ? 1 : options.attemptsPerTask).map((k) => ({ k, atK: 0, hatK: 0 }))
  }

  get rollouts(): number {
    return this.#rollouts
  }

  get usage(): Readonly<Usage> {
    return this.#usage
  }

  get outcomes(): Readonly<Record<Outcome, number>> {
    return this.#outcomes
  }

  /** Null while none is known: a rollout that asked no model costs nothing, but that makes no price known. */
  get cost(): number | null {
    return this.#costUnknown > 0 && this.#priced === 0 ? null : roundedSum(this.#cost)
  }

  add(record: EndedRollout): void {
    this.#rollouts += 1
    this.#outcomes[record.outcome] += 1
    if (record.error && !outcomes[record.outcome].scored) this.#reasons[record.outcome] ??= record.error.message
    if (record.voided) this.#voided += 1
    this.#toolCalls += record.toolCalls
    this.#toolErrors += record.toolErrors
    for (const fault of record.toolFaults ?? []) this.#toolFaults.add(fault)
    for (const { server, cause } of record.missingServers ?? []) {
      const known = this.#missing.get(server)
      if (known) known.rollouts += 1
      else this.#missing.set(server, { server, rollouts: 1, cause })
    }
    addUsage(this.#usage, record.usage)
    addUsage(this.#judgeUsage, record.judgeUsage)
    for (const model of record.judgeModels ?? []) {
      if (this.#judgeModels.size < maxJudgeModels) this.#judgeModels.add(model)
    }
    if (record.cost === null) this.#costUnknown += 1
    else if (record.usage.calls + record.judgeUsage.calls > 0) this.#priced += 1
    this.#cost += record.cost ?? 0
    // What the environment failed before the agent's first turn took no time that says anything about the others.
    if (record.outcome !== 'env_error' || record.turns > 0) {
      for (const name of durationNames) recordMs(this.#durations[name], record.timing[timingFields[name]])
    }
    for (const name in record.metrics) this.#metrics.add(name, record.metrics[name] ?? 0, 0)
    if (record.reward !== null) {
      this.#scored += 1
      for (const name in record.rewards) {
        const component = record.rewards[name]
        if (component) this.#rewards.add(name, component.score, component.weight)
      }
    }
    this.#addToTask(record.task.index, record.reward)
  }

  /** The mean reward of all ended rollouts, tasks still open included; undefined before the first reward. */
  estimate(): ScoreEstimate | undefined {
    if (this.#open.size === 0) return this.#mean.estimate()
    const mean = this.#mean.copy()
    for (const task of this.#open.values()) mean.add(task)
    return mean.estimate()
  }

  /** The summary as of now; may be taken at any time. Tasks still open count for the mean but not for pass@k. */
  snapshot(): RolloutSummary {
    const { passTasks, sums } = this.#isServed ? this.#servedPass() : { passTasks: this.#passTasks, sums: this.#pass }
    const rewards = this.#rewards.means()
    return {
      attemptsPerTask: this.#attemptsPerTask,
      tasks: this.#foldedTasks + this.#open.size,
      rollouts: this.#rollouts,
      scored: this.#scored,
      score: this.estimate(),
      // Rewards come first, and win where a metric has the same name.
      components: { ...rewards, ...this.#metrics.means(), ...rewards },
      pass: sums.map(({ k, atK, hatK }) => ({
        k,
        atK: passTasks === 0 ? Number.NaN : atK / passTasks,
        hatK: passTasks === 0 ? Number.NaN : hatK / passTasks,
        tasks: passTasks,
      })),
      passThreshold: this.#passThreshold,
      outcomes: { ...this.#outcomes },
      reasons: { ...this.#reasons },
      voided: this.#voided,
      tools: { calls: this.#toolCalls, failed: this.#toolErrors },
      toolFaults: this.#toolFaults.list(),
      missingServers: Array.from(this.#missing.values(), (missing) => ({ ...missing })),
      usage: { ...this.#usage },
      judgeUsage: { ...this.#judgeUsage },
      judgeModels: [...this.#judgeModels],
      cost: this.cost,
      costUnknown: this.#costUnknown,
      durations: byDuration((name) => {
        const histogram = this.#durations[name]
        return { p50Ms: percentileMs(histogram, 50), p95Ms: percentileMs(histogram, 95) }
      }),
    }
  }

  #addToTask(index: number, reward: number | null): void {
    // With one attempt per task, a task ends with it and is never open.
    const isShared = this.#attemptsPerTask > 1 || this.#isServed
    const open = isShared ? this.#open.get(index) : undefined
    const task = open ?? { ended: 0, count: 0, passed: 0, sum: 0, isBinary: true }
    if (isShared && !open) this.#open.set(index, task)
    task.ended += 1
    if (reward !== null) {
      task.count += 1
      task.sum += reward
      task.isBinary &&= isBinaryReward(reward)
      if (reward >= this.#passThreshold) task.passed += 1
    }
    if (task.ended < this.#attemptsPerTask || this.#isServed) return
    if (isShared) this.#open.delete(index)
    this.#foldedTasks += 1
    this.#mean.add(task)
    // An attempt without a score would make the task look easier or harder than it is, so the whole task is left out.
    if (task.count < this.#attemptsPerTask) return
    this.#passTasks += 1
    for (const sums of this.#pass) {
      sums.atK += passAtK(task.count, task.passed, sums.k)
      sums.hatK += passHatK(task.count, task.passed, sums.k)
    }
  }

  #servedPass(): { readonly passTasks: number; readonly sums: readonly PassSums[] } {
    const scored = Array.from(this.#open.values()).filter((task) => task.count === task.ended)
    const sum = scored.reduce((total, task) => total + task.passed / task.count, 0)
    return { passTasks: scored.length, sums: [{ k: 1, atK: sum, hatK: sum }] }
  }
}

/** A clock that was set back gives negative durations; a histogram has whole numbers from 1 on. */
function recordMs(histogram: RecordableHistogram, ms: number): void {
  histogram.record(Math.min(Math.max(1, Math.round(ms * 1000)), maxDurationMicros))
}

/** Within 1%, in whole milliseconds, as durations are recorded; NaN if there are no durations. */
function percentileMs(histogram: RecordableHistogram, percentile: number): number {
  return histogram.count === 0 ? Number.NaN : Math.round(histogram.percentile(percentile) / 1000)
}

/** More names are a mistake, such as a task's id in a metric's name; each rollout's record has them all anyway. */
const maxNames = 200

/** Means by name, each over the rollouts that have it. Names past the limit are left out. */
class NamedMeans {
  readonly #sums = new Map<string, { readonly sum: number; readonly rollouts: number; readonly weight: number }>()

  add(name: string, value: number, weight: number): void {
    if (!this.#sums.has(name) && this.#sums.size >= maxNames) return
    const { sum, rollouts } = this.#sums.get(name) ?? { sum: 0, rollouts: 0 }
    this.#sums.set(name, { sum: sum + value, rollouts: rollouts + 1, weight })
  }

  means(): Record<string, { mean: number; rollouts: number; weight: number }> {
    return Object.fromEntries(
      Array.from(this.#sums, ([name, { sum, rollouts, weight }]) => [name, { mean: sum / rollouts, rollouts, weight }]),
    )
  }
}
