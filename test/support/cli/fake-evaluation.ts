import type { Evaluation, Progress, RunInfo, Summary } from '../../../src/eval/index.ts'
import { emptyUsage, outcomeNames, type RolloutRecord } from '../../../src/schema/index.ts'

export function sampleRecord(more: Partial<RolloutRecord> = {}): RolloutRecord {
  return {
    id: '0-0',
    environment: 'arithmetic',
    model: 'sim',
    task: { index: 0, id: 'task-0' },
    sample: 0,
    attempt: 1,
    outcome: 'completed',
    truncated: false,
    reward: 1,
    rewards: { correct: { score: 1, weight: 1 } },
    metrics: {},
    answer: '4',
    messages: [{ role: 'user', content: 'What is 2+2?' }],
    turns: 2,
    toolCalls: 1,
    toolErrors: 0,
    children: 0,
    usage: { ...emptyUsage(), calls: 2, input: 200, output: 20 },
    judgeUsage: emptyUsage(),
    cost: 0.01,
    timing: { startedAt: 0, wallMs: 900, workingMs: 800, waitMs: 100, modelMs: 700, toolMs: 50, rewardMs: 3 },
    ...more,
  }
}

export function sampleProgress(more: Partial<Progress> = {}): Progress {
  return {
    run: 'brisk-otter',
    environment: 'arithmetic',
    model: 'sim',
    hasToolServers: false,
    elapsedMs: 12_400,
    total: { count: 300, exact: true },
    ended: 158,
    resumed: 0,
    unread: 0,
    active: 64,
    perSecond: 12.74,
    etaMs: 11_100,
    score: { mean: 0.8123, low: 0.778, high: 0.8466, standardError: 0.0169, rollouts: 156, tasks: 39 },
    outcomes: { completed: 152, max_turns: 4, model_error: 2 },
    usage: { calls: 320, input: 1_234_000, cachedInput: 400_000, output: 210_000, reasoning: 0 },
    cost: 0.4212,
    lag: { p99Ms: 1.2, maxMs: 8.4, meanMs: 0.2, utilization: 0.34 },
    storeLag: { p99Ms: 0.4, maxMs: 2.1, meanMs: 0.1, utilization: 0.12 },
    servers: [],
    models: [{ name: 'sim', limit: 64, inFlight: 61, waiting: 3, parked: 0, calls: 320, tries: 331 }],
    workers: [],
    state: 'running',
    ...more,
  }
}

export function sampleSummary(more: Partial<Summary> = {}): Summary {
  return {
    run: 'brisk-otter',
    folder: 'runs/brisk-otter',
    environment: 'arithmetic',
    model: 'sim',
    attemptsPerTask: 4,
    tools: { calls: 300, failed: 4 },
    toolFaults: [],
    missingServers: [],
    discarded: { attempts: 0, usage: emptyUsage(), costUsd: 0, costUnknown: 0 },
    unfinished: { attempts: 0, waitForGroup: 0, usage: emptyUsage(), costUsd: 0, costUnknown: 0 },
    end: 'complete',
    state: 'complete',
    missingTasks: 0,
    repeatedTaskIds: [],
    changedCode: [],
    tasks: 75,
    rollouts: 300,
    scored: 300,
    score: { mean: 0.8123, low: 0.778, high: 0.8466, standardError: 0.0169, rollouts: 300, tasks: 75 },
    components: { correct: { mean: 0.8123, rollouts: 300, weight: 1 } },
    pass: [
      { k: 1, atK: 0.8123, hatK: 0.8123, tasks: 75 },
      { k: 2, atK: 0.911, hatK: 0.702, tasks: 75 },
      { k: 4, atK: 0.967, hatK: 0.551, tasks: 75 },
    ],
    passThreshold: 1,
    outcomes: {
      ...(Object.fromEntries(outcomeNames.map((name) => [name, 0])) as Summary['outcomes']),
      completed: 296,
      max_turns: 4,
    },
    reasons: {},
    voided: 0,
    usage: { calls: 600, input: 1_234_000, cachedInput: 400_000, output: 210_000, reasoning: 0 },
    judgeUsage: emptyUsage(),
    judgeModels: [],
    cost: 0.4212,
    costUnknown: 0,
    durations: {
      wall: { p50Ms: 1200, p95Ms: 2300 },
      model: { p50Ms: 900, p95Ms: 1800 },
      tools: { p50Ms: 4.2, p95Ms: 9 },
      reward: { p50Ms: 0, p95Ms: 0.4 },
      wait: { p50Ms: 130, p95Ms: 400 },
    },
    wallMs: 12_400,
    perSecond: 24.2,
    tries: { calls: 600, tries: 612 },
    ...more,
  }
}

/** A run that goes on until the test lets it end: by itself, drained or stopped. */
export class FakeEvaluation implements Evaluation {
  readonly started: Promise<RunInfo>
  readonly calls: string[] = []
  readonly #records: readonly RolloutRecord[]
  readonly #summary: Summary
  readonly #error: Error | undefined
  readonly #ended = Promise.withResolvers<Summary['end']>()

  constructor(
    options: {
      readonly records?: readonly RolloutRecord[]
      readonly info?: Partial<RunInfo>
      readonly summary?: Summary
      /** Whether the run waits for a signal; otherwise it ends by itself. */
      readonly waits?: boolean
      readonly startError?: Error
      readonly error?: Error
    } = {},
  ) {
    this.#records = options.records ?? []
    this.#summary = options.summary ?? sampleSummary()
    this.#error = options.startError ?? options.error
    const info = { name: 'brisk-otter', folder: 'runs/brisk-otter', resumed: 0, notices: [], ...options.info }
    this.started = options.startError ? Promise.reject(options.startError) : Promise.resolve(info)
    this.started.catch(() => {})
    if (!options.waits) this.#ended.resolve(this.#summary.end)
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<RolloutRecord, void, void> {
    if (this.#error) {
      await this.started
      throw this.#error
    }
    for (const record of this.#records) yield record
    await this.#ended.promise
  }

  progress(): Progress {
    return sampleProgress()
  }

  drain(): void {
    this.calls.push('drain')
  }

  stop(): void {
    this.calls.push('stop')
    this.#ended.resolve('stopped')
  }

  /** Ends the run after a drain. */
  endDrained(): void {
    this.#ended.resolve('drained')
  }

  async summary(): Promise<Summary> {
    return { ...this.#summary, end: await this.#ended.promise }
  }
}
