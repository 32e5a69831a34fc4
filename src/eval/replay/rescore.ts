import { z } from 'zod'
import type { Environment, JudgeRequest } from '../../env/index.ts'
import { MillraceError, type WireError } from '../../errors/index.ts'
import { AbortScope, Resource, Semaphore, TimeSlice } from '../../kit/index.ts'
import {
  askJudge,
  ModelSet,
  RecordedServers,
  questionDigest,
  readJudgeCalls,
  readServerAnswers,
  readVerdicts,
  scoreGroupInTime,
  StoredScorer,
  Tally,
  VerdictReader,
} from '../../rollout/index.ts'
import {
  type AssistantMessage,
  closedObject,
  type Outcome,
  type RewardComponent,
  type RolloutRecord,
} from '../../schema/index.ts'
import { isDamage, type RunReader } from '../../store/index.ts'
import type { ServerCalls } from '../../tools/index.ts'
import { requireOptions, sharedOptions } from '../options.ts'
import { runSettings } from '../run-config.ts'
import { UnreadableRollouts } from '../stats/run-sums.ts'
import { isScorable, RescoreAccumulator, type RescoreSummary } from './rescore-summary.ts'
import { failGroup, rescoreGroup, settlesGroups } from './rescore-group.ts'
import { loadStoredEnvironment, readStoredConfig, type StoredRunConfig, storedSeed } from './stored-config.ts'
import { type KnownTask, knownTasks, type StoredTaskOptions } from './stored-tasks.ts'

export interface RescoreOptions {
  /** The environment whose rewards to use: a module, or an environment itself. The one that made the run if not given. */
  readonly environment?: string | Environment
  readonly options?: Readonly<Record<string, unknown>>
  /** Whether `setup` runs, so that rewards see its state; true if not given. */
  readonly setup?: boolean
  /** `recorded`, the default: a question that was not asked when the run was made fails its reward. */
  readonly judge?: 'recorded' | 'live'
  /** Rollouts at once; 64 if not given. */
  readonly concurrency?: number
  readonly signal?: AbortSignal
}

const rescoreOptionsSchema = closedObject({
  environment: sharedOptions.environment,
  options: sharedOptions.options,
  setup: z.boolean().optional(),
  judge: z.enum(['recorded', 'live']).optional(),
  concurrency: sharedOptions.concurrency,
  signal: sharedOptions.signal,
} satisfies Record<keyof RescoreOptions, unknown>)

export interface RescoredRollout {
  readonly id: string
  readonly task: { readonly index: number; readonly id: string }
  readonly outcome: Outcome
  readonly before: number | null
  readonly after: number | null
  readonly rewards: Readonly<Record<string, RewardComponent>>
  readonly metrics: Readonly<Record<string, number>>
  readonly error?: WireError
}

/** Iterate it for the rollouts, task by task; damaged rollouts are left out, and named in the summary. */
export interface Rescoring extends AsyncIterable<RescoredRollout> {
  /** The summary of the rollouts scored so far; of all once the iteration has ended. */
  summary(): RescoreSummary
}

/** Runs rewards over the rollouts that a run holds, without any model or tool. The run is not changed. */
export async function rescoreRun(reader: RunReader, options: RescoreOptions = {}): Promise<Rescoring> {
  requireOptions(rescoreOptionsSchema, options, 'rescoreRun()')
  const config = readStoredConfig(reader)
  const loaded = await loadStoredEnvironment(config, options.environment, options.options)
  return new RunningRescore({ reader, config, loaded, options })
}

const defaultConcurrency = 64

type RescoreParts = StoredTaskOptions & { readonly options: RescoreOptions }

interface Rescored {
  readonly before: RolloutRecord
  readonly after: RolloutRecord
}

/** The rollouts of one task. If they cannot use it (`problem`), they stay as they were. */
interface RescoredTask {
  readonly pairs: readonly Rescored[]
  readonly unreadable: readonly string[]
  readonly isStored?: boolean
  readonly problem?: string | undefined
}

class RunningRescore implements Rescoring {
  readonly #parts: RescoreParts
  readonly #accumulator: RescoreAccumulator
  readonly #judged = new Tally()
  readonly #unreadable = new UnreadableRollouts()
  #startedAt = performance.now()
  #endedAt: number | undefined
  #hasReadState = false

  constructor(parts: RescoreParts) {
    const { attempts: attemptsPerTask, passThreshold, isServed = false } = parts.config
    this.#parts = parts
    this.#accumulator = new RescoreAccumulator({ attemptsPerTask, passThreshold, isServed })
  }

  summary(): RescoreSummary {
    const { config, loaded } = this.#parts
    return this.#accumulator.summary({
      run: config.name,
      environment: loaded.name,
      ...this.#unreadable.snapshot(),
      judgeUsage: { ...this.#judged.judgeUsage },
      judgeCost: this.#judged.costUsd,
      notices: this.#hasReadState ? stateNotices(loaded.environment) : [],
      wallMs: (this.#endedAt ?? performance.now()) - this.#startedAt,
    })
  }

  /** Tasks are scored in parallel and handed out in order. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RescoredRollout, void, void> {
    const { reader, config, loaded, options } = this.#parts
    using stopping = new AbortScope(options.signal)
    this.#startedAt = performance.now()
    await using judge = new RescoreJudge(this.#parts, this.#judged)
    await using scorer = this.#scorer(judge, stopping.signal)
    const maxTasks = Math.max(1, Math.floor((options.concurrency ?? defaultConcurrency) / config.attempts))
    const window: Promise<RescoredTask>[] = []
    const slice = new TimeSlice()
    try {
      for await (const task of knownTasks({ reader, config, loaded, signal: stopping.signal })) {
        const scored = this.#scoreTask(task, scorer, stopping.signal)
        // A failure is thrown when the task is taken; until then its rejection must not count as unhandled.
        scored.catch(() => {})
        window.push(scored)
        while (window.length >= maxTasks) yield* this.#take(await window.shift())
        // There may be rewards that never wait for anything.
        if (slice.isOver) await slice.rest()
      }
      while (window.length > 0) yield* this.#take(await window.shift())
    } finally {
      // A reader that leaves early waits for the scoring that still runs, which is told to stop.
      stopping.abort(new MillraceError('cancelled', 'the reader of the scores has stopped'))
      await Promise.allSettled(window)
      this.#endedAt = performance.now()
      this.#hasReadState = scorer.hasReadState
    }
  }

  async #scoreTask(known: KnownTask, scorer: StoredScorer, signal: AbortSignal): Promise<RescoredTask> {
    const { config, loaded } = this.#parts
    const { records: before, unreadable } = this.#recordsOf(known.index)
    const { problem } = known
    if (problem !== undefined) {
      return { pairs: before.map((record) => ({ before: record, after: record })), unreadable, problem }
    }
    const { item, isStored } = known
    const task = { index: item.index, id: item.id, data: item.task }
    const after = await Promise.all(
      before.map((record) => {
        if (!isScorable(record)) return Promise.resolve(record)
        const { id, attempt } = record
        const judgeCostUsd = (): number =>
          readJudgeCalls(this.#parts.reader, id, attempt).reduce((sum, { cost }) => sum + (cost ?? 0), 0)
        return scorer.score({ record, task, seed: storedSeed(config, id, attempt), judgeCostUsd })
      }),
    )
    const { environment, options } = loaded
    const [missing] = unreadable
    const group = after.filter(({ unscored }) => !unscored)
    if (missing !== undefined && settlesGroups(environment)) failGroup(group, missing)
    else if (settlesGroups(environment)) {
      const { tailMs } = config.limits
      await rescoreGroup(group, environment, (members) =>
        scoreGroupInTime(environment, { task: item.task, options, members, tailMs, signal }),
      )
    }
    const pairs = before.map((record, index) => ({ before: record, after: after[index] ?? record }))
    return { pairs, unreadable, isStored }
  }

  #take(task: RescoredTask | undefined): RescoredRollout[] {
    const { pairs = [], unreadable = [], isStored = false, problem } = task ?? {}
    for (const rollout of unreadable) this.#unreadable.add(rollout)
    if (problem === undefined) {
      this.#accumulator.addTask(pairs, isStored)
      return pairs.map(lineOf)
    }
    const error: WireError = { code: 'run_mismatch', message: problem }
    return pairs.map((pair) => {
      const { before } = pair
      // This rollout could not be scored anyway, often because its row was no valid task.
      if (!isScorable(before)) {
        this.#accumulator.addTask([pair])
        return lineOf(pair)
      }
      this.#accumulator.addWithoutTask(before)
      return lineOf({ before, after: Object.assign({}, before, { reward: null, error }) })
    })
  }

  #recordsOf(task: number): { readonly records: readonly RolloutRecord[]; readonly unreadable: readonly string[] } {
    const { reader } = this.#parts
    const records: RolloutRecord[] = []
    const unreadable: string[] = []
    for (const id of reader.rolloutsOf(task)) {
      try {
        const record = reader.rollout(id)
        if (record) records.push(record)
      } catch (error) {
        if (!isDamage(error)) throw error
        unreadable.push(id)
      }
    }
    return { records, unreadable }
  }

  #scorer(judge: RescoreJudge, signal: AbortSignal): StoredScorer {
    const { config, loaded, options } = this.#parts
    const { specifier, rawOptions } = loaded
    return new StoredScorer({
      environment: loaded.environment,
      options: loaded.options,
      limits: config.limits,
      module: specifier === undefined ? undefined : { specifier, options: rawOptions },
      runsSetup: options.setup ?? true,
      serversFor: ({ record }) => recordedServers(this.#parts.reader, record),
      askJudge: (request, { record }, asked) => judge.ask(request, record, asked),
      signal,
    })
  }
}

/** The recorded answers of tool servers; read on the first call, which most rewards never make. */
function recordedServers(reader: RunReader, { id, attempt }: RolloutRecord): ServerCalls {
  let noted: RecordedServers | undefined
  return {
    call: (server, call) => {
      noted ??= new RecordedServers(unopenedServers, {
        journal: { append: () => {} },
        rollout: id,
        attempt,
        recorded: readServerAnswers(reader, id, attempt),
      })
      return noted.call(server, call)
    },
  }
}

const unopenedServers: ServerCalls = {
  call: (server, { tool }) => {
    const message = `its call of ${tool} on tool server "${server}" is not in the recording`
    return Promise.reject(new MillraceError('reward_failed', message))
  },
}

/** A tool whose recorded answers are enough to go on with (`reuse`) changes no state. */
function stateNotices(environment: Environment): string[] {
  const { name, tools = {} } = environment
  if (!environment.update && Object.values(tools).every(({ resume }) => resume === 'reuse')) return []
  return [
    `a reward of ${name} reads the state, which here is the state after setup: no tools or updates have run. ` +
      'If they change the values it reads, these scores are wrong: the reward must read the messages instead, or, if ' +
      'it is offloaded or for a group, the values kept by `note`',
  ]
}

function lineOf({ before, after }: Rescored): RescoredRollout {
  const { id, task, outcome, reward, rewards, metrics, error } = after
  return { id, task, outcome, before: before.reward, after: reward, rewards, metrics, ...(error && { error }) }
}

/** Answers the questions of rewards with the recorded verdicts; other questions are asked of a judge only if that is allowed. */
class RescoreJudge extends Resource {
  readonly #reader: RunReader
  readonly #config: StoredRunConfig
  readonly #models: ModelSet | undefined
  readonly #permits: Semaphore
  readonly #tally: Tally
  /** The recorded verdicts of the rollouts that are being scored; an entry is freed with its record. */
  readonly #verdicts = new WeakMap<RolloutRecord, VerdictReader>()

  /** `tally` adds up what live judges use. */
  constructor({ reader, config, options }: RescoreParts, tally: Tally) {
    super()
    this.#reader = reader
    this.#config = config
    this.#tally = tally
    this.#permits = new Semaphore(config.judgeConcurrency)
    if (options.judge !== 'live') return
    this.#models = new ModelSet({ configs: config.models, env: process.env, onLimitChange: () => {} })
  }

  ask(request: JudgeRequest, record: RolloutRecord, signal: AbortSignal): Promise<AssistantMessage> {
    const name = request.model ?? this.#config.judge
    const recorded = this.#verdictsOf(record).take(questionDigest(name, request))
    if (recorded) return Promise.resolve(recorded.reply)
    const models = this.#models
    if (!models) {
      const message = `its call of the judge ${name} is not in the recording; --judge live (judge: 'live') calls the judge now`
      return Promise.reject(new MillraceError('reward_failed', message))
    }
    return askJudge(request, {
      services: {
        settings: runSettings(this.#config, []),
        judgePermits: this.#permits,
        model: (wanted) => models.get(wanted),
        // Nothing is added to the stored run.
        journal: { append: () => {} },
      },
      rollout: record.id,
      attempt: record.attempt,
      tally: this.#tally,
      clock: undefined,
      trace: undefined,
      verdicts: undefined,
      signal,
    })
  }

  #verdictsOf(record: RolloutRecord): VerdictReader {
    const known = this.#verdicts.get(record)
    if (known) return known
    const verdicts = new VerdictReader(readVerdicts(this.#reader, record.id, record.attempt), undefined, {
      repeats: true,
    })
    this.#verdicts.set(record, verdicts)
    return verdicts
  }

  protected async onClose(): Promise<void> {
    await this.#models?.close()
  }
}
