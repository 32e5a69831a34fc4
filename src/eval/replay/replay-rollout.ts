import { join } from 'node:path'
import type { Environment, LoadedEnvironment, ValidTask } from '../../env/index.ts'
import { closeAll, maxTimerMs, Resource } from '../../kit/index.ts'
import {
  agentOutcomeOf,
  callsIn,
  callStyleOf,
  InlineExecutor,
  unopenedTools,
  type AttemptResult,
  type RolloutJob,
} from '../../rollout/index.ts'
import { rolloutId, type Limits, type Outcome, type RolloutRecord } from '../../schema/index.ts'
import { isDamage, type BareRecord, type RunReader } from '../../store/index.ts'
import { requireKnownOptions, type KnownOptions } from '../known-options.ts'
import { refusingBackend } from './refusing-backend.ts'
import { RecordedCatalogues } from './recorded-catalogues.ts'
import { Comparison } from './comparison.ts'
import {
  loadStoredEnvironment,
  readStoredConfig,
  settingsOf,
  storedOpening,
  storedSeed,
  type StoredRunConfig,
} from './stored-config.ts'
import { beforeSettling, settleAgain, settlesGroups } from './settle-again.ts'
import { ReplayJournal, type ReplayedSession } from './replay-journal.ts'
import { closedCassette, readRecording, type RecordedSession, type Recording } from './recording.ts'
import type { ReplayReport } from './replay-report.ts'
import { knownTask, knownTasks, type KnownTask } from './stored-tasks.ts'

export interface ReplayOptions {
  /** Replaces the environment that made the run: a module, or an environment itself. */
  readonly environment?: string | Environment
  /** Options of the environment that differ from the run's, or were not kept with it. */
  readonly options?: Readonly<Record<string, unknown>>
  readonly signal?: AbortSignal
}

const knownReplayOptions = {
  environment: 'any',
  options: 'object',
  signal: 'signal',
} as const satisfies KnownOptions & Record<keyof ReplayOptions, unknown>

/**
 * Runs a stored rollout again, against nothing but its own recording: its agent, updates, children and rewards, with no model, no
 * judge and no tool but those that rebuild the rollout's state. Reports what differs.
 */
export async function replayRollout(
  reader: RunReader,
  rollout: string,
  options: ReplayOptions = {},
): Promise<ReplayReport> {
  requireKnownOptions(options, 'replayRollout()', knownReplayOptions)
  const config = readStoredConfig(reader)
  const recording = readRecording(reader, rollout)
  const why = whyNot(recording)
  if (why !== undefined) return skipped(recording.record, why)
  await using replayer = await Replayer.open(reader, config, options)
  const { index } = recording.record.task
  const task = await knownTask(reader, replayer.loaded, { index, signal: options.signal })
  return await replayer.replay(recording, task)
}

/** Replays every ended rollout of a run, task by task, one at a time. A damaged rollout does not end the replay. */
export async function* replayRun(
  reader: RunReader,
  options: ReplayOptions = {},
): AsyncGenerator<ReplayReport, void, void> {
  requireKnownOptions(options, 'replayRun()', knownReplayOptions)
  await using replayer = await Replayer.open(reader, readStoredConfig(reader), options)
  for await (const task of knownTasks(reader, replayer.loaded, options.signal)) {
    for (let sample = 0; sample < replayer.config.attempts; sample += 1) {
      const id = rolloutId(task.index, sample)
      if (reader.hasEnded(id)) yield await replayOrDamage(reader, id, { replayer, task })
    }
  }
}

async function replayOrDamage(
  reader: RunReader,
  rollout: string,
  { replayer, task }: { readonly replayer: Replayer; readonly task: KnownTask },
): Promise<ReplayReport> {
  try {
    const recording = readRecording(reader, rollout)
    const why = whyNot(recording)
    if (why !== undefined) return skipped(recording.record, why)
    if (task.problem !== undefined) return skipped(recording.record, task.problem)
    return await replayer.replay(recording, task.item)
  } catch (error) {
    if (!isDamage(error)) throw error
    const attempt = reader.attempts(rollout).findLast(({ discarded }) => !discarded)?.attempt ?? 0
    return { ...nothingRan, rollout, attempt, outcome: null, verdict: 'unreadable', why: error.rawMessage }
  }
}

/** Outcomes of rollouts that were lost before they could end: there is no end to repeat. */
const lostEnds: ReadonlySet<Outcome> = new Set<Outcome>(['worker_lost', 'poisoned', 'stale'])

/** Outcomes of agents that ran out of time. */
const endedByTime: ReadonlySet<Outcome> = new Set<Outcome>(['agent_timeout', 'infra_timeout'])

/** The parts that all replays of a run share: its environment, and an executor that can ask nobody. */
class Replayer extends Resource {
  readonly config: StoredRunConfig
  readonly loaded: LoadedEnvironment
  readonly #reader: RunReader
  readonly #journal = new ReplayJournal()
  readonly #executor: InlineExecutor
  /** An executor with the time limits of the run; made with the first rollout that needs it. */
  #timedExecutor: InlineExecutor | undefined
  readonly #signal: AbortSignal
  readonly #catalogues: RecordedCatalogues

  private constructor(parts: {
    reader: RunReader
    config: StoredRunConfig
    loaded: LoadedEnvironment
    signal: AbortSignal | undefined
  }) {
    super()
    const { reader, config, loaded } = parts
    this.#reader = reader
    this.config = config
    this.loaded = loaded
    this.#signal = parts.signal ?? new AbortController().signal
    this.#catalogues = new RecordedCatalogues(reader)
    const { limits } = settingsOf(config)
    // Time is not repeated: if it had ended a rollout, the recording says so.
    this.#executor = this.#executorWithin({ ...limits, timeoutMs: maxTimerMs, wallTimeoutMs: maxTimerMs })
  }

  #executorWithin(limits: Limits): InlineExecutor {
    const { config } = this
    const { environment, options, specifier, rawOptions } = this.loaded
    return new InlineExecutor({
      environment,
      options,
      settings: { ...settingsOf(config), limits, outputsFolder: join(this.#reader.folder, 'outputs') },
      models: config.models,
      env: {},
      journal: this.#journal,
      opensServers: false,
      backends: Object.fromEntries(config.models.map(({ name }) => [name, [refusingBackend]])),
      ...(specifier !== undefined && { module: { specifier, options: rawOptions } }),
    })
  }

  static async open(reader: RunReader, config: StoredRunConfig, options: ReplayOptions): Promise<Replayer> {
    const loaded = await loadStoredEnvironment(config, options.environment, options.options)
    return new Replayer({ reader, config, loaded, signal: options.signal })
  }

  async replay(recording: Recording, item: ValidTask): Promise<ReplayReport> {
    const { record } = recording
    const { id, attempt, sample } = record
    let others: readonly RolloutRecord[]
    try {
      others = this.#othersOfGroup(record)
    } catch (error) {
      if (!isDamage(error)) throw error
      return skipped(record, `its group cannot be scored again: ${error.rawMessage}`)
    }
    const opening = storedOpening(this.config)
    const task = { index: item.index, id: item.id, data: item.task }
    const job: RolloutJob = {
      id,
      attempt,
      sample,
      task,
      seed: storedSeed(this.config, id, attempt),
      ...(opening && { opening }),
      cassette: closedCassette(recording, this.#catalogues.of(id, attempt)),
    }
    const result = await this.#executorFor(recording).run(job, this.#signal)
    const sessions = this.#journal.take()
    const ended = result.kind === 'ended' ? await this.#settled(result.record, others, task) : undefined
    return this.#report(recording, { sessions, record: ended, why: whyEnded(result) })
  }

  /** A rollout that ran out of time may get stuck in the same place again, so it has the run's time limits. */
  #executorFor({ record }: Recording): InlineExecutor {
    if (!endedByTime.has(agentOutcomeOf(record))) return this.#executor
    return (this.#timedExecutor ??= this.#executorWithin(settingsOf(this.config).limits))
  }

  /** The other members of its group, as they were before the group was settled; empty if groups are not settled. */
  #othersOfGroup({ task, sample: own }: BareRecord): RolloutRecord[] {
    const { environment } = this.loaded
    const others: RolloutRecord[] = []
    if (!settlesGroups(environment)) return others
    for (let sample = 0; sample < this.config.attempts; sample += 1) {
      const stored = sample === own ? undefined : this.#reader.rollout(rolloutId(task.index, sample))
      if (stored) others.push(beforeSettling(stored, environment))
    }
    return others
  }

  /** Settles the replayed record with its group, if the environment settles groups. */
  async #settled(
    record: RolloutRecord,
    others: readonly RolloutRecord[],
    task: RolloutJob['task'],
  ): Promise<RolloutRecord> {
    const { environment } = this.loaded
    if (!settlesGroups(environment)) return record
    const members = [...others, record].toSorted((one, other) => one.sample - other.sample)
    await settleAgain(members, environment, (scored) =>
      this.#executor.scoreGroup({ task, members: scored }, this.#signal),
    )
    return record
  }

  #report(
    { record, sessions }: Recording,
    replayed: {
      sessions: ReadonlyMap<string, ReplayedSession>
      record: RolloutRecord | undefined
      why: string | undefined
    },
  ): ReplayReport {
    const comparison = new Comparison()
    const kept = Array.from(replayed.sessions.values(), (session) => [...session.kept]).flat()
    const isKept = (id: string): boolean =>
      kept.some(([key]) => id === record.id + key || id.startsWith(`${record.id}${key}.`))
    for (const { id, nodes } of sessions) {
      if (!replayed.sessions.has(id) && !isKept(id)) comparison.strange(id, 'recorded', nodes.length)
    }
    const known = new Map(sessions.map((session) => [session.id, session]))
    for (const [id, session] of replayed.sessions) {
      const recorded = known.get(id)
      if (!recorded) comparison.strange(id, 'replayed', session.nodes.length)
      else {
        comparison.session(recorded, session)
        if (recorded.parent !== null && recorded.record && session.record !== undefined) {
          const child = JSON.parse(session.record) as BareRecord
          comparison.record(id, recorded.record, child)
        }
      }
    }
    if (replayed.record) comparison.record(record.id, record, replayed.record)
    const { differences, omitted, first, messages } = comparison
    const isIdentical = differences.length === 0 && replayed.why === undefined
    return {
      rollout: record.id,
      attempt: record.attempt,
      outcome: record.outcome,
      verdict: isIdentical ? 'identical' : 'different',
      ...(replayed.why !== undefined && { why: replayed.why }),
      messages,
      children: {
        replayed: sessions.filter(({ id, parent }) => parent !== null && replayed.sessions.has(id)).length,
        kept: kept.reduce((sum, [, { children }]) => sum + 1 + children, 0),
      },
      differences,
      omitted,
      ...(first && { first }),
      hints: isIdentical ? [] : this.#hints(sessions),
    }
  }

  /** Names the environment's own tools that were answered from the recording, by the tool's name, not the one the model used. */
  #hints(sessions: readonly RecordedSession[]): string[] {
    const { environment, options } = this.loaded
    const box = unopenedTools(environment, options, [])
    const style = callStyleOf(this.config)
    const recalled = new Set<string>()
    for (const { nodes } of sessions) {
      for (const call of callsIn(nodes, style)) {
        const { tool } = box.planned(call)
        if (tool !== undefined && environment.tools?.[tool] && box.resumeRule(call) !== 'rerun') recalled.add(tool)
      }
    }
    if (recalled.size === 0) return []
    return [
      `${[...recalled].join(', ')} did not run: the recorded answers were taken. A tool that changes the rollout's state must ` +
        "say so with resume: 'rerun', or what looks at that state sees another one",
    ]
  }

  protected onClose(): Promise<void> {
    return closeAll([this.#executor, this.#timedExecutor])
  }
}

/** Why a rollout cannot be replayed; undefined if it can. */
function whyNot({ record, sessions }: Recording): string | undefined {
  // Nothing ran then, even if the row is a valid task now.
  if (record.error?.code === 'task_invalid') {
    return `nothing ran: it was not a valid task when the run was made (${record.error.message})`
  }
  if (lostEnds.has(record.outcome)) return `it ended as ${record.outcome}: its own end is not known`
  if (sessions[0]?.nodes.length === 0 && record.outcome !== 'env_error') {
    return `it ended as ${record.outcome} before anything was said`
  }
  return undefined
}

function whyEnded(result: AttemptResult): string | undefined {
  return result.kind === 'ended' ? undefined : result.why
}

const nothingRan = { messages: 0, children: { replayed: 0, kept: 0 }, differences: [], omitted: 0, hints: [] }

function skipped({ id, attempt, outcome }: BareRecord, why: string): ReplayReport {
  return { ...nothingRan, rollout: id, attempt, outcome, verdict: 'skipped', why }
}
