import type { Environment, LoadedEnvironment } from '../../env/index.ts'
import { MillraceError, type WireError } from '../../errors/index.ts'
import { AbortScope, TimeSlice } from '../../kit/index.ts'
import { NotedServers, scoreGroupInTime, StoredScorer, Tally } from '../../rollout/index.ts'
import type { Outcome, RewardComponent, RolloutRecord } from '../../schema/index.ts'
import { isDamage, type RunReader } from '../../store/index.ts'
import type { ServerCalls } from '../../tools/index.ts'
import { requireKnownOptions, type KnownOptions } from '../known-options.ts'
import { choiceOption, wholeOption } from '../option-values.ts'
import { UnreadableRollouts } from '../unreadable-rollouts.ts'
import { loadStoredEnvironment, readStoredConfig, storedSeed, type StoredRunConfig } from './stored-config.ts'
import { leaveUnsettled, settleAgain, settlesGroups } from './settle-again.ts'
import { readJudgeCost, readServerAnswers } from './recording.ts'
import { knownTasks, type KnownTask } from './stored-tasks.ts'
import { RescoreJudge } from './rescore-judge.ts'
import { isScorable, RescoreAccumulator, type RescoreSummary } from './rescore-summary.ts'

export interface RescoreOptions {
  /** The environment whose rewards to use: a module, or an environment itself. The one that made the run if not given. */
  readonly environment?: string | Environment
  /** Options of the environment that differ from the run's. */
  readonly options?: Readonly<Record<string, unknown>>
  /** Whether `setup` runs, so that rewards see its state; true if not given. */
  readonly setup?: boolean
  /** `recorded`, the default: a question that was not asked when the run was made fails its reward. */
  readonly judge?: 'recorded' | 'live'
  /** Rollouts at once; 64 if not given. */
  readonly concurrency?: number
  readonly signal?: AbortSignal
}

const knownRescoreOptions = {
  environment: 'any',
  options: 'object',
  setup: 'switch',
  judge: 'any',
  concurrency: 'any',
  signal: 'signal',
} as const satisfies KnownOptions & Record<keyof RescoreOptions, unknown>

/** The reward of one rollout before and now. */
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

/**
 * Runs the rewards of an environment over the rollouts that a run holds, without any model or tool. The run is not changed.
 * Only as many rollouts as are being scored are held.
 */
export async function rescoreRun(reader: RunReader, options: RescoreOptions = {}): Promise<Rescoring> {
  requireKnownOptions(options, 'rescoreRun()', knownRescoreOptions)
  choiceOption('judge', options.judge ?? 'recorded', ['recorded', 'live'])
  wholeOption('concurrency', options.concurrency ?? defaultConcurrency, 1)
  const config = readStoredConfig(reader)
  const loaded = await loadStoredEnvironment(config, options.environment, options.options)
  return new RunningRescore({ reader, config, loaded, options })
}

const defaultConcurrency = 64

interface RescoreParts {
  readonly reader: RunReader
  readonly config: StoredRunConfig
  readonly loaded: LoadedEnvironment
  readonly options: RescoreOptions
}

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
    const { config } = parts
    this.#parts = parts
    this.#accumulator = new RescoreAccumulator({
      attemptsPerTask: config.attempts,
      passThreshold: config.passThreshold,
      isServed: config.isServed ?? false,
    })
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
    const isLive = options.judge === 'live'
    await using judge = new RescoreJudge({ reader, config, isLive, tally: this.#judged, env: process.env })
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
      stopping.abort(new MillraceError('cancelled', 'nobody reads the scores any more'))
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
        if (!isScorable(record.outcome)) return Promise.resolve(record)
        const { id, attempt } = record
        const judgeCostUsd = (): number => readJudgeCost(this.#parts.reader, id, attempt)
        return scorer.score({ record, task, seed: storedSeed(config, id, attempt), judgeCostUsd })
      }),
    )
    const { environment, options } = loaded
    const [missing] = unreadable
    if (missing !== undefined && settlesGroups(environment)) leaveUnsettled(after, missing)
    else if (settlesGroups(environment)) {
      const { tailMs } = config.limits
      await settleAgain(after, environment, (members) =>
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
      if (!isScorable(before.outcome)) {
        this.#accumulator.addTask([pair])
        return lineOf(pair)
      }
      this.#accumulator.addWithoutTask(before)
      return lineOf({ before, after: Object.assign({}, before, { reward: null, error }) })
    })
  }

  /** The stored rollouts of a task; damaged ones are listed apart. */
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
  let noted: NotedServers | undefined
  return {
    call: (server, call) => {
      noted ??= new NotedServers(unopenedServers, {
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
    const message = `it calls ${tool} of the tool server "${server}", which was not called so when the run was made`
    return Promise.reject(new MillraceError('reward_failed', message))
  },
}

/**
 * Warns of scores from a state that tools and updates have not changed, as they had in the run: they look like any others. A tool
 * whose recorded answers are enough to go on with (`reuse`) changes no state.
 */
function stateNotices(environment: Environment): string[] {
  const { name, tools = {} } = environment
  if (!environment.update && Object.values(tools).every(({ resume }) => resume === 'reuse')) return []
  return [
    `a reward of ${name} looks at the state, which here is what setup makes of it: neither tools nor updates have run. ` +
      'If they change what it looks at, these scores are wrong: such a reward must look at the messages instead, or, if ' +
      'it is heavy or for a group, at what `note` kept',
  ]
}

function lineOf({ before, after }: Rescored): RescoredRollout {
  const { id, task, outcome, reward, rewards, metrics, error } = after
  return { id, task, outcome, before: before.reward, after: reward, rewards, metrics, ...(error && { error }) }
}
