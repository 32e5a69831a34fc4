import { readTasks, TaskStream, type TaskItem } from '../env/index.ts'
import { peeked } from '../kit/index.ts'
import { codeChangeNotice } from './code-change.ts'
import type { OpenedRun } from './open-run.ts'
import { forkedTask, type Fork } from './replay/fork.ts'
import type { ResolvedRun } from './resolve-run.ts'
import type { TakenUpRun } from './take-up-run.ts'
import { addedNotice, knownTasks, missingNotice, missingTasks, tasksFound } from './run-extent.ts'

interface SittingTasksOptions {
  readonly run: OpenedRun
  readonly resolved: ResolvedRun
  readonly fork: Fork | undefined
  /** Aborts when no more tasks are wanted: a source that is stuck must not hold up the end. */
  readonly signal: AbortSignal
}

/** The tasks that one sitting reads, and whether they are all the tasks of its run. */
export class SittingTasks implements AsyncDisposable {
  readonly #run: OpenedRun
  readonly #limit: number | null
  /** Undefined for a fork: its task came with it. */
  readonly #stream: TaskStream | undefined
  readonly #rest: AsyncIterable<TaskItem> & AsyncDisposable
  readonly #added: string | undefined
  /** How many tasks the run was found to have. */
  readonly #known: number | undefined

  private constructor(
    { run, resolved, fork }: SittingTasksOptions,
    stream: TaskStream | undefined,
    rest: AsyncIterable<TaskItem> & AsyncDisposable,
  ) {
    this.#run = run
    this.#limit = resolved.config.limit
    this.#stream = stream
    this.#rest = rest
    const before = tasksFound(run.store.run)
    const total = this.total()
    this.#added = fork ? undefined : addedNotice(run.name, { tasks: before, extent: run.formerExtent }, total)
    this.#known = fork ? undefined : knownTasks(before, total)
  }

  /** Reads the first task, so that a missing file is found before there is a run. */
  static async open(options: SittingTasksOptions): Promise<SittingTasks> {
    const { run, resolved, fork, signal } = options
    const { environment, options: given } = resolved.loaded
    const limit = resolved.config.limit ?? undefined
    const source = fork ? forkedTask(fork) : await readTasks(environment, given, { limit, signal })
    const stream = source instanceof TaskStream ? source : undefined
    await using ends = new AsyncDisposableStack()
    const rest = ends.use(await peeked(source))
    stream?.requireSome()
    const tasks = new SittingTasks(options, stream, rest)
    if (tasks.#known !== undefined) run.store.amend({ provenance: { tasks: tasks.#known } })
    ends.move()
    return tasks
  }

  total(): ReturnType<TaskStream['total']> {
    return this.#stream?.total()
  }

  /** How many tasks of the run its source does not have any more. */
  missing(): number {
    return missingTasks(this.#known, this.#limit, this.total())
  }

  /** Notices for a person whose source of tasks has become longer, or shorter where that is not refused. */
  notices({ wasComplete, changedCode }: TakenUpRun): string[] {
    const { name } = this.#run
    const missing = wasComplete ? undefined : missingNotice(name, this.missing(), this.total())
    // In a complete run only added tasks run, if there are any.
    const changed = wasComplete && this.#added !== undefined ? codeChangeNotice(name, changedCode) : undefined
    return [missing, this.#added, changed].filter((notice) => notice !== undefined)
  }

  /** Whether this sitting read as many tasks as the run has, or all there are. */
  areAll(): boolean {
    const limit = this.#limit
    const hasReachedEnd = limit === null || limit === this.#run.extent || (this.total()?.count ?? limit) < limit
    return hasReachedEnd && this.missing() === 0
  }

  [Symbol.asyncIterator](): AsyncIterator<TaskItem> {
    return this.#rest[Symbol.asyncIterator]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#rest[Symbol.asyncDispose]()
  }
}
