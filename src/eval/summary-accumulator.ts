import { roundedSum } from '../kit/index.ts'
import { ToolFaults } from '../rollout/index.ts'
import {
  addUsage,
  emptyUsage,
  outcomeNames,
  outcomes,
  type Outcome,
  type RolloutRecord,
  type RolloutTiming,
  type Usage,
} from '../schema/index.ts'
import { ClusteredMean, isBinaryReward, type TaskRewards } from './clustered-mean.ts'
import { DurationHistogram } from './duration-histogram.ts'
import { MissingServers } from './_missing-servers.ts'
import { NamedMeans } from './_named-means.ts'
import { passAtK, passHatK, toldKs } from './pass-at-k.ts'
import type { ScoreEstimate } from './progress.ts'
import type { Summary } from './summary.ts'

/** The fields of an ended rollout that a summary needs. */
export type EndedRollout = Pick<
  RolloutRecord,
  | 'task'
  | 'outcome'
  | 'error'
  | 'reward'
  | 'voided'
  | 'rewards'
  | 'metrics'
  | 'usage'
  | 'judgeUsage'
  | 'judgeModels'
  | 'cost'
  | 'timing'
  | 'turns'
  | 'toolCalls'
  | 'toolErrors'
  | 'toolFaults'
  | 'missingServers'
>

/** The part of a summary that follows from the rollouts alone. */
export type RolloutSummary = Pick<
  Summary,
  | 'attemptsPerTask'
  | 'tasks'
  | 'rollouts'
  | 'scored'
  | 'score'
  | 'components'
  | 'pass'
  | 'passThreshold'
  | 'outcomes'
  | 'reasons'
  | 'voided'
  | 'tools'
  | 'toolFaults'
  | 'missingServers'
  | 'usage'
  | 'judgeUsage'
  | 'judgeModels'
  | 'cost'
  | 'costUnknown'
  | 'durations'
>

interface OpenTask {
  ended: number
  scored: number
  passed: number
  sum: number
  /** Whether each of its rewards is 0 or 1. */
  isBinary: boolean
}

interface PassSums {
  readonly k: number
  atK: number
  hatK: number
}

type DurationName = keyof Summary['durations']

const maxJudgeModels = 20

const durationNames: readonly DurationName[] = ['wall', 'model', 'tools', 'reward', 'wait']

/**
 * Turns rollouts, as they end, into the figures of a summary, in memory that does not grow with the run. A task is held open
 * until all its attempts have ended and is then folded into sums; as many can be open as rollouts run at once. A rollout without
 * a reward is counted and never taken for a zero.
 *
 * A server's run is the exception: each request says how many attempts it wants, so no task is known to have ended, all stay
 * open, and only pass@1 can be reported of them together.
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
  readonly #missing = new MissingServers()
  readonly #toolFaults = new ToolFaults()
  readonly #rewards = new NamedMeans()
  readonly #metrics = new NamedMeans()
  readonly #usage = emptyUsage()
  readonly #judgeUsage = emptyUsage()
  readonly #judgeModels = new Set<string>()
  readonly #durations = Object.fromEntries(durationNames.map((name) => [name, new DurationHistogram()])) as Record<
    DurationName,
    DurationHistogram
  >
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
    this.#pass = toldKs(this.#isServed ? 1 : options.attemptsPerTask).map((k) => ({ k, atK: 0, hatK: 0 }))
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

  /**
   * The sum of the known costs; null while none is known. A rollout that asked no model costs nothing, but that does not make
   * prices known.
   */
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
    if (record.missingServers) this.#missing.add(record.missingServers)
    addUsage(this.#usage, record.usage)
    addUsage(this.#judgeUsage, record.judgeUsage)
    for (const model of record.judgeModels ?? []) {
      if (this.#judgeModels.size < maxJudgeModels) this.#judgeModels.add(model)
    }
    if (record.cost === null) this.#costUnknown += 1
    else if (record.usage.calls + record.judgeUsage.calls > 0) this.#priced += 1
    this.#cost += record.cost ?? 0
    // What the environment failed before the agent's first turn took no time that says anything about the others.
    if (record.outcome !== 'env_error' || record.turns > 0) this.#addDurations(record.timing)
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
    for (const task of this.#open.values()) mean.add(rewardsOf(task))
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
      missingServers: this.#missing.list(),
      usage: { ...this.#usage },
      judgeUsage: { ...this.#judgeUsage },
      judgeModels: [...this.#judgeModels],
      cost: this.cost,
      costUnknown: this.#costUnknown,
      durations: Object.fromEntries(
        durationNames.map((name) => {
          const histogram = this.#durations[name]
          return [name, { p50Ms: histogram.quantileMs(0.5), p95Ms: histogram.quantileMs(0.95) }]
        }),
      ) as Summary['durations'],
    }
  }

  #addDurations({ wallMs, modelMs, toolMs, rewardMs, waitMs }: RolloutTiming): void {
    const { wall, model, tools, reward, wait } = this.#durations
    wall.add(wallMs)
    model.add(modelMs)
    tools.add(toolMs)
    reward.add(rewardMs)
    wait.add(waitMs)
  }

  #addToTask(index: number, reward: number | null): void {
    // With one attempt per task, a task ends with it and is never open.
    const isShared = this.#attemptsPerTask > 1 || this.#isServed
    const open = isShared ? this.#open.get(index) : undefined
    const task = open ?? { ended: 0, scored: 0, passed: 0, sum: 0, isBinary: true }
    if (isShared && !open) this.#open.set(index, task)
    task.ended += 1
    if (reward !== null) {
      task.scored += 1
      task.sum += reward
      task.isBinary &&= isBinaryReward(reward)
      if (reward >= this.#passThreshold) task.passed += 1
    }
    if (task.ended < this.#attemptsPerTask || this.#isServed) return
    if (isShared) this.#open.delete(index)
    this.#foldedTasks += 1
    this.#mean.add(rewardsOf(task))
    // An attempt without a score would make the task look easier or harder than it is, so the whole task is left out.
    if (task.scored < this.#attemptsPerTask) return
    this.#passTasks += 1
    for (const sums of this.#pass) {
      sums.atK += passAtK(task.scored, task.passed, sums.k)
      sums.hatK += passHatK(task.scored, task.passed, sums.k)
    }
  }

  /** The pass rate over the tasks all of whose rollouts so far were scored. */
  #servedPass(): { readonly passTasks: number; readonly sums: readonly PassSums[] } {
    const scored = Array.from(this.#open.values()).filter((task) => task.scored === task.ended)
    const sum = scored.reduce((total, task) => total + task.passed / task.scored, 0)
    return { passTasks: scored.length, sums: [{ k: 1, atK: sum, hatK: sum }] }
  }
}

function rewardsOf({ sum, scored, isBinary }: OpenTask): TaskRewards {
  return { sum, count: scored, isBinary }
}
