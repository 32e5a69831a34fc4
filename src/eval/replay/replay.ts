import { join } from 'node:path'
import type { Environment, ValidTask } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { Backend } from '../../apis/index.ts'
import { maxTimerMs, Resource } from '../../kit/index.ts'
import {
  agentOutcomeOf,
  callsIn,
  callStyleOf,
  InlineExecutor,
  recordingToReplay,
  type RolloutJob,
  toolsWithoutServers,
} from '../../rollout/index.ts'
import { closedObject, type Limits, type Outcome, type RolloutRecord } from '../../schema/index.ts'
import { type BareRecord, isDamage, type RunReader } from '../../store/index.ts'
import { requireOptions, sharedOptions } from '../options.ts'
import { runSettings } from '../run-config.ts'
import { readRollout, RecordedCatalogues, type RecordedRollout } from './recorded-rollout.ts'
import { ReplayJournal } from './replay-journal.ts'
import { type ReplayReport, replayReport, skippedReport, unreadableReport } from './report.ts'
import { beforeGroupScoring, rescoreGroup, settlesGroups } from './rescore-group.ts'
import {
  loadStoredEnvironment,
  readStoredConfig,
  storedPromptOverride,
  type StoredRunConfig,
  storedSeed,
} from './stored-config.ts'
import { knownTask, type KnownTask, knownTasks, type StoredTaskOptions } from './stored-tasks.ts'

export interface ReplayOptions {
  /** Replaces the environment that made the run: a module, or an environment itself. */
  readonly environment?: string | Environment
  /** Options of the environment that differ from the run's, or were not kept with it. */
  readonly options?: Readonly<Record<string, unknown>>
  readonly signal?: AbortSignal
}

const replayOptionsSchema = closedObject({
  environment: sharedOptions.environment,
  options: sharedOptions.options,
  signal: sharedOptions.signal,
} satisfies Record<keyof ReplayOptions, unknown>)

/** Runs a stored rollout again, against nothing but its own recording, and reports what differs. */
export async function replayRollout(
  reader: RunReader,
  rollout: string,
  options: ReplayOptions = {},
): Promise<ReplayReport> {
  requireOptions(replayOptionsSchema, options, 'replayRollout()')
  const config = readStoredConfig(reader)
  const recording = readRollout(reader, rollout)
  const why = whyNot(recording)
  if (why !== undefined) return skippedReport(recording.record, why)
  await using replayer = await Replayer.open(reader, config, options)
  const task = await knownTask(replayer.run, recording.record.task.index)
  return await replayer.replay(recording, task)
}

/** Replays every ended rollout of a run, task by task, one at a time. A damaged rollout does not end the replay. */
export async function* replayRun(
  reader: RunReader,
  options: ReplayOptions = {},
): AsyncGenerator<ReplayReport, void, void> {
  requireOptions(replayOptionsSchema, options, 'replayRun()')
  await using replayer = await Replayer.open(reader, readStoredConfig(reader), options)
  for await (const task of knownTasks(replayer.run)) {
    for (const id of reader.rolloutsOf(task.index)) {
      if (reader.hasEnded(id)) yield await replayOrDamage(replayer, id, task)
    }
  }
}

async function replayOrDamage(replayer: Replayer, rollout: string, task: KnownTask): Promise<ReplayReport> {
  const { reader } = replayer.run
  try {
    const recording = readRollout(reader, rollout)
    const why = whyNot(recording)
    if (why !== undefined) return skippedReport(recording.record, why)
    if (task.problem !== undefined) return skippedReport(recording.record, task.problem)
    return await replayer.replay(recording, task.item)
  } catch (error) {
    if (!isDamage(error)) throw error
    const attempt = reader.attempts(rollout).findLast(({ discarded }) => !discarded)?.attempt ?? 0
    return unreadableReport(rollout, attempt, error.rawMessage)
  }
}

/** Outcomes of rollouts that were lost before they could end: there is no end to repeat. */
const lostEnds: ReadonlySet<Outcome> = new Set<Outcome>(['worker_lost', 'poisoned', 'stale'])

function whyNot({ record, sessions }: RecordedRollout): string | undefined {
  // Nothing ran then, even if the row is a valid task now.
  if (record.error?.code === 'task_invalid') {
    return `nothing ran: it was not a valid task when the run was made (${record.error.message})`
  }
  if (lostEnds.has(record.outcome)) return `it ended as ${record.outcome}, so its own end was not recorded`
  if (sessions[0]?.nodes.length === 0 && record.outcome !== 'env_error') {
    return `it ended as ${record.outcome} before its first message`
  }
  return undefined
}

const endedByTime: ReadonlySet<Outcome> = new Set<Outcome>(['agent_timeout', 'infra_timeout'])

/** The parts that all replays of a run share: its environment, and an executor that can ask nobody. */
class Replayer extends Resource {
  readonly run: StoredTaskOptions
  readonly #journal = new ReplayJournal()
  readonly #executor: InlineExecutor
  /** An executor with the time limits of the run; made with the first rollout that needs it. */
  #timedExecutor: InlineExecutor | undefined
  readonly #signal: AbortSignal
  readonly #catalogues: RecordedCatalogues

  private constructor(run: StoredTaskOptions) {
    super()
    this.run = run
    this.#signal = run.signal ?? new AbortController().signal
    this.#catalogues = new RecordedCatalogues(run.reader)
    const { limits } = run.config
    // Time is not repeated: if it had ended a rollout, the recording says so.
    this.#executor = this.#executorWithin({ ...limits, timeoutMs: maxTimerMs, wallTimeoutMs: maxTimerMs })
  }

  #executorWithin(limits: Limits): InlineExecutor {
    const { reader, config, loaded } = this.run
    const { environment, options, specifier, rawOptions } = loaded
    return new InlineExecutor({
      environment,
      options,
      settings: { ...runSettings(config, []), limits, outputsFolder: join(reader.folder, 'outputs') },
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

  async replay(recorded: RecordedRollout, item: ValidTask): Promise<ReplayReport> {
    const { record, sessions: recordedSessions, verdicts, serverAnswers } = recorded
    const { id, attempt, sample } = record
    let others: readonly RolloutRecord[]
    try {
      others = this.#othersOfGroup(record)
    } catch (error) {
      if (!isDamage(error)) throw error
      return skippedReport(record, `its group cannot be scored again: ${error.rawMessage}`)
    }
    const { config } = this.run
    const opening = recorded.opening ?? storedPromptOverride(config)
    const task = { index: item.index, id: item.id, data: item.task }
    const job: RolloutJob = {
      id,
      attempt,
      sample,
      task,
      seed: storedSeed(config, id, attempt),
      ...(opening && { opening }),
      ...(record.unscored && { isScored: false }),
      recording: recordingToReplay(record, recordedSessions, {
        verdicts,
        serverAnswers,
        catalogues: this.#catalogues.of(id, attempt),
      }),
    }
    const result = await this.#executorFor(recorded).run(job, this.#signal)
    const sessions = this.#journal.take()
    const ended = result.kind === 'ended' ? await this.#settled(result.record, others, task) : undefined
    const why = result.kind === 'ended' ? undefined : result.why
    const report = replayReport(recorded, { sessions, record: ended, why })
    if (report.verdict === 'identical') return report
    return { ...report, hints: recalledToolHints(recorded, task, this.run) }
  }

  /** A rollout that ran out of time may get stuck in the same place again, so it has the run's time limits. */
  #executorFor({ record }: RecordedRollout): InlineExecutor {
    if (!endedByTime.has(agentOutcomeOf(record))) return this.#executor
    return (this.#timedExecutor ??= this.#executorWithin(this.run.config.limits))
  }

  /** The other members of its group, as they were before the group was settled; empty if groups are not settled. */
  #othersOfGroup({ task, id: own }: BareRecord): RolloutRecord[] {
    const { reader, loaded } = this.run
    const { environment } = loaded
    const others: RolloutRecord[] = []
    if (!settlesGroups(environment)) return others
    for (const id of reader.rolloutsOf(task.index)) {
      const stored = id === own ? undefined : reader.rollout(id)
      if (stored) others.push(beforeGroupScoring(stored, environment))
    }
    return others
  }

  async #settled(
    record: RolloutRecord,
    others: readonly RolloutRecord[],
    task: RolloutJob['task'],
  ): Promise<RolloutRecord> {
    const { environment } = this.run.loaded
    if (!settlesGroups(environment) || record.unscored) return record
    const members = [...others, record].toSorted((one, other) => one.sample - other.sample)
    await rescoreGroup(members, environment, (scored) =>
      this.#executor.scoreGroup({ task, members: scored }, this.#signal),
    )
    return record
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    parts.use(this.#executor)
    parts.use(this.#timedExecutor)
  }
}

/** Names the environment's own tools that were answered from the recording, by the tool's name, not the one the model used. */
function recalledToolHints(
  { sessions }: RecordedRollout,
  { data: task }: RolloutJob['task'],
  { loaded, config }: StoredTaskOptions,
): string[] {
  const { environment, options } = loaded
  const box = toolsWithoutServers(environment, options, { task })
  const style = callStyleOf(config)
  const recalled = new Set<string>()
  for (const { nodes } of sessions) {
    for (const call of callsIn(nodes, style)) {
      const { name: tool } = box.planned(call)
      if (tool !== undefined && environment.tools?.[tool] && box.resumeRule(call) !== 'rerun') recalled.add(tool)
    }
  }
  if (recalled.size === 0) return []
  return [
    `${[...recalled].join(', ')} did not run: the recorded answers were used. A tool that changes the rollout's state must ` +
      "declare it with resume: 'rerun'; otherwise code that reads the state sees a different one",
  ]
}

/** Replaces every backend of a replay, which asks no model: a request is an error. */
const refusingBackend: Backend = {
  name: 'recording',
  send: () =>
    Promise.reject(new MillraceError('replay_diverged', 'the rollout called a model, but a replay has no models')),
  [Symbol.asyncDispose]: () => Promise.resolve(),
}
