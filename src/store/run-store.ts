import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { MessagePort } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { Resource, type LoopLagWindow } from '../kit/index.ts'
import { RunReader } from './read/run-reader.ts'
import {
  type NewRun,
  newRunFile,
  readRunFile,
  type RunFile,
  type RunState,
  lostJournalReason,
  writeRunFile,
} from './run/run-file.ts'
import { createRunFolder, fileSize, noRun, runFiles } from './run/run-folder.ts'
import { RunLock } from './run/run-lock.ts'
import { RunPresence } from './run/run-presence.ts'
import { JournalClient } from './write/journal-client.ts'
import { type RetryFailed, StoreWriter } from './write/store-writer.ts'
import type { StoreStatus } from './write/writer-figures.ts'

interface OpenRunOptions {
  readonly folder: string
  /** Starts the run if the folder holds none yet; an existing run must have the same configuration. */
  readonly create?: NewRun
  readonly signal?: AbortSignal
}

/** How a launch ended, and what is known only then about the origin of its results. */
export interface LaunchEnd {
  readonly end?: string
  readonly workedMs?: number
  readonly sent?: { readonly calls: number; readonly tries: number }
  readonly provenance?: NewRun['provenance']
}

export class RunStore extends Resource {
  readonly folder: string
  readonly journal: JournalClient
  readonly reader: RunReader
  readonly isResumed: boolean
  readonly #lock: RunLock
  readonly #writer: StoreWriter
  readonly #presence: RunPresence
  #run: RunFile
  #wasComplete: boolean

  private constructor(parts: {
    folder: string
    lock: RunLock
    writer: StoreWriter
    presence: RunPresence
    journal: JournalClient
    reader: RunReader
    run: RunFile
    isResumed: boolean
    wasComplete: boolean
  }) {
    super()
    this.folder = parts.folder
    this.reader = parts.reader
    this.isResumed = parts.isResumed
    this.journal = parts.journal
    this.#lock = parts.lock
    this.#writer = parts.writer
    this.#presence = parts.presence
    this.#run = parts.run
    this.#wasComplete = parts.wasComplete
  }

  static requireFree(folder: string): void {
    RunLock.requireFree(folder)
  }

  static async open({ folder, create, signal }: OpenRunOptions): Promise<RunStore> {
    signal?.throwIfAborted()
    if (create) createRunFolder(folder)
    else if (!readRunFile(folder)) throw noRun(folder)
    using opened = new DisposableStack()
    const lock = opened.use(RunLock.acquire(folder))
    const existing = readRunFile(folder)
    const run = existing ?? newRunFile(requireNewRun(create, folder))
    if (existing && create) requireSameConfig(existing, create, folder)
    const wasComplete = existing?.state === 'complete'
    requireJournal(folder, existing)
    const former = existing && structuredClone(existing)
    run.state = 'running'
    run.launches.push({ startedAt: new Date().toISOString() })
    writeRunFile(folder, run)
    if (former) opened.defer(() => putBack(folder, former))
    await using started = new AsyncDisposableStack()
    const writer = started.use(await StoreWriter.start(folder, signal))
    const presence = opened.use(new RunPresence(folder))
    const reader = started.use(RunReader.open(folder))
    const journal = started.use(new JournalClient(writer.connect()))
    const isResumed = existing !== undefined
    const store = new RunStore({ folder, lock, writer, presence, journal, reader, run, isResumed, wasComplete })
    // From here on the store owns them.
    started.move()
    opened.move()
    return store
  }

  get run(): Readonly<RunFile> {
    return this.#run
  }

  /** Whether the run was complete when it was opened, and no results were taken back since. */
  get wasComplete(): boolean {
    return this.#wasComplete
  }

  /** Aborts once, with a `disk_full` or `store_failed` error, when nothing more can be written. */
  get failure(): AbortSignal {
    return this.journal.failure
  }

  /** What has happened to the run, if it was deleted, moved or replaced. Then nothing must be written to its path any more. */
  absence(): MillraceError | undefined {
    return this.#presence.absence()
  }

  /** How late the writer's event loop runs, over the last second or so. Each commit blocks that loop until it is on disk. */
  lag(): LoopLagWindow {
    return this.#writer.figures.lag()
  }

  status(): StoreStatus {
    return this.#writer.figures.status()
  }

  /** A port for a `JournalClient` on another thread, which then talks to the writer directly. Transfer it there. */
  connect(): MessagePort {
    this.throwIfClosed()
    return this.#writer.connect()
  }

  /** Calls `listener` with the attempt whenever messages of this rollout have become durable. Nobody else is slowed down by it. */
  watch(rollout: string, listener: (attempt: number) => void): Disposable {
    return this.#writer.watch(rollout, listener)
  }

  /** Adds to the description of the run. `run.json` is written at once, because the process may be killed. */
  amend({ config, provenance }: Partial<Pick<NewRun, 'config' | 'provenance'>>): void {
    const run = structuredClone(this.#run)
    run.config = { ...run.config, ...config }
    run.provenance = { ...run.provenance, ...provenance }
    if (isDeepStrictEqual(run, this.#run)) return
    this.#writeRunFile(run)
  }

  /** Takes back the results with these outcomes; their rollouts are unfinished again. Resolves to their number. */
  async retryFailed(failed: RetryFailed): Promise<number> {
    if (failed.outcomes.length === 0) return 0
    await this.journal.durable()
    const count = await this.#writer.retryFailed(failed)
    if (count > 0) this.#wasComplete = false
    return count
  }

  /** Says in `run.json` how this launch ended; close afterwards. A run is complete only once everything is durable. */
  async finish(state: Exclude<RunState, 'running'>, details: LaunchEnd = {}): Promise<void> {
    if (state === 'complete' || !this.failure.aborted) await this.journal.durable()
    this.throwIfClosed()
    this.#writeEnd(state, details)
  }

  #writeEnd(state: RunState, { end, workedMs, sent, provenance }: LaunchEnd): void {
    const run = structuredClone(this.#run)
    run.state = state
    if (provenance) run.provenance = { ...run.provenance, ...provenance }
    const launch = run.launches.at(-1)
    if (launch) {
      launch.endedAt = new Date().toISOString()
      if (workedMs !== undefined) launch.workedMs = workedMs
      if (sent) launch.sent = sent
      if (end !== undefined) launch.end = end
    }
    this.#writeRunFile(run)
  }

  #writeRunFile(run: RunFile): void {
    const absence = this.absence()
    if (absence) throw absence
    writeRunFile(this.folder, run)
    this.#run = run
  }

  /** Writes the appended entries, then lets go of the run: reader, writer, lock, in this order. */
  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    parts.use(this.#lock)
    parts.use(this.#presence)
    parts.defer(() => this.#markUnfinished())
    parts.use(this.#writer)
    // Before the writer, so that its last checkpoint finds nobody reading.
    parts.use(this.reader)
    parts.use(this.journal)
  }

  /** Marks a launch that nobody finished. If that is refused, by a full disk say, the run counts as unfinished for want of a lock. */
  #markUnfinished(): void {
    if (this.#run.state !== 'running') return
    try {
      this.#writeEnd('unfinished', {})
    } catch {
      // See above.
    }
  }
}

/** Restores `run.json`. If that fails, the file says `running`, which counts as unfinished while nobody holds the lock. */
function putBack(folder: string, former: RunFile): void {
  try {
    writeRunFile(folder, former)
  } catch {
    // The caller gets the error that kept the run from opening.
  }
}

function requireNewRun(create: NewRun | undefined, folder: string): NewRun {
  if (!create) throw noRun(folder)
  return create
}

function requireSameConfig(existing: RunFile, create: NewRun, folder: string): void {
  if (existing.configDigest === create.configDigest) return
  throw new MillraceError(
    'run_mismatch',
    `the run in ${folder} has another configuration; repeat the command it was started with, or choose another name with --run (run.name)`,
    { data: { folder, existing: existing.configDigest, given: create.configDigest } },
  )
}

/** Refuses a run whose journal is gone, since its records would be lost without a word. */
function requireJournal(folder: string, run: RunFile | undefined): void {
  if (fileSize(join(folder, runFiles.database)) > 0) return
  const sign = lostJournalReason(folder, run)
  if (sign === undefined) return
  throw new MillraceError(
    'store_failed',
    `the run in ${folder} ${sign}, but its ${runFiles.database} is gone; restore that file, or start another run with --run <name> (run.name)`,
  )
}
