import { join } from 'node:path'
import type { LoadedEnvironment, ValidTask } from '../../env/index.ts'
import { closeAll, maxTimerMs, Resource } from '../../kit/index.ts'
import { agentOutcomeOf, InlineExecutor, type RolloutJob } from '../../rollout/index.ts'
import type { Limits, Outcome, RolloutRecord } from '../../schema/index.ts'
import { isDamage, type BareRecord, type RunReader } from '../../store/index.ts'
import { recalledToolHints } from './_recalled-tool-hints.ts'
import { RecordedCatalogues } from './recorded-catalogues.ts'
import { closedCassette, type Recording } from './recording.ts'
import { refusingBackend } from './refusing-backend.ts'
import { ReplayJournal } from './replay-journal.ts'
import type { ReplayReport } from './replay-report.ts'
import type { ReplayOptions } from './replay-rollout.ts'
import { replayReport, skippedReport } from './_report-of-replay.ts'
import { beforeSettling, settleAgain, settlesGroups } from './settle-again.ts'
import { loadStoredEnvironment, settingsOf, storedOpening, storedSeed, type StoredRunConfig } from './stored-config.ts'

/** Outcomes of agents that ran out of time. */
const endedByTime: ReadonlySet<Outcome> = new Set<Outcome>(['agent_timeout', 'infra_timeout'])

/** The parts that all replays of a run share: its environment, and an executor that can ask nobody. */
export class Replayer extends Resource {
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
    const { limits } = config
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
      return skippedReport(record, `its group cannot be scored again: ${error.rawMessage}`)
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
    const why = result.kind === 'ended' ? undefined : result.why
    const report = replayReport(recording, { sessions, record: ended, why })
    if (report.verdict === 'identical') return report
    return { ...report, hints: recalledToolHints(recording, this.loaded, this.config) }
  }

  /** A rollout that ran out of time may get stuck in the same place again, so it has the run's time limits. */
  #executorFor({ record }: Recording): InlineExecutor {
    if (!endedByTime.has(agentOutcomeOf(record))) return this.#executor
    return (this.#timedExecutor ??= this.#executorWithin(this.config.limits))
  }

  /** The other members of its group, as they were before the group was settled; empty if groups are not settled. */
  #othersOfGroup({ task, id: own }: BareRecord): RolloutRecord[] {
    const { environment } = this.loaded
    const others: RolloutRecord[] = []
    if (!settlesGroups(environment)) return others
    for (const id of this.#reader.rolloutsOf(task.index)) {
      const stored = id === own ? undefined : this.#reader.rollout(id)
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

  protected onClose(): Promise<void> {
    return closeAll([this.#executor, this.#timedExecutor])
  }
}
