import { readTasks, type TaskItem, TaskStream } from '../../env/index.ts'
import { peekFirst } from '../../kit/index.ts'
import { type Fork, forkedTask } from '../replay/fork.ts'
import type { ResolvedRun } from '../resolve-run.ts'
import { newRunOption, codeChangeNotice } from './code-change.ts'
import type { OpenedRun, TaskLimit } from './open-run.ts'

interface LaunchTasksOptions {
  readonly run: OpenedRun
  readonly resolved: ResolvedRun
  readonly fork: Fork | undefined
  readonly signal: AbortSignal
}

/** The tasks that one launch reads, and whether they are all the tasks of its run. */
export class LaunchTasks implements AsyncDisposable {
  readonly #run: OpenedRun
  readonly #limit: number | null
  /** Undefined for a fork: its task came with it. */
  readonly #stream: TaskStream | undefined
  readonly #rest: AsyncIterable<TaskItem> & AsyncDisposable
  readonly #added: string | undefined
  readonly #known: number | undefined

  private constructor(
    { run, resolved, fork }: LaunchTasksOptions,
    stream: TaskStream | undefined,
    rest: AsyncIterable<TaskItem> & AsyncDisposable,
  ) {
    this.#run = run
    this.#limit = resolved.config.limit
    this.#stream = stream
    this.#rest = rest
    if (fork) return
    const { tasks } = run.store.run.provenance
    const before = typeof tasks === 'number' ? tasks : undefined
    const total = this.total()
    this.#added = addedNotice(run.name, { tasks: before, taskLimit: run.formerTaskLimit }, total)
    this.#known = Math.max(before ?? 0, total?.exact ? total.count : 0) || undefined
  }

  /** Reads the first task, so that a missing file is found before there is a run. */
  static async open(options: LaunchTasksOptions): Promise<LaunchTasks> {
    const { run, resolved, fork, signal } = options
    const { environment, options: given } = resolved.loaded
    const limit = resolved.config.limit ?? undefined
    const source = fork ? forkedTask(fork) : await readTasks(environment, given, { limit, signal })
    const stream = source instanceof TaskStream ? source : undefined
    await using ends = new AsyncDisposableStack()
    const rest = ends.use(await peekFirst(source))
    stream?.requireSome()
    const tasks = new LaunchTasks(options, stream, rest)
    if (tasks.#known !== undefined) run.store.amend({ provenance: { tasks: tasks.#known } })
    ends.move()
    return tasks
  }

  total(): ReturnType<TaskStream['total']> {
    return this.#stream?.total()
  }

  /** How many tasks that this launch should find, since the run had them before, its source does not have any more. */
  missing(): number {
    const total = this.total()
    if (this.#known === undefined || !total?.exact) return 0
    return Math.max(0, Math.min(this.#known, this.#limit ?? this.#known) - total.count)
  }

  /** Notices for a person whose source of tasks has become longer, or shorter where that is not refused. */
  notices(wasComplete: boolean, changedCode: readonly string[]): string[] {
    const { name } = this.#run
    const missing = wasComplete ? undefined : missingNotice(name, this.missing(), this.total())
    // In a complete run only added tasks run, if there are any.
    const changed = wasComplete && this.#added !== undefined ? codeChangeNotice(name, changedCode) : undefined
    return [missing, this.#added, changed].filter((notice) => notice !== undefined)
  }

  /** Whether this launch read as many tasks as the run has, or all there are. */
  areAll(): boolean {
    const limit = this.#limit
    const hasReachedEnd = limit === null || limit === this.#run.taskLimit || (this.total()?.count ?? limit) < limit
    return hasReachedEnd && this.missing() === 0
  }

  [Symbol.asyncIterator](): AsyncIterator<TaskItem> {
    return this.#rest[Symbol.asyncIterator]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#rest[Symbol.asyncDispose]()
  }
}

function count(tasks: number): string {
  return tasks.toLocaleString('en-US')
}

type TaskTotal = { readonly count: number; readonly exact: boolean } | undefined

/** A notice for a person who asks for fewer tasks than the run has; undefined if they do not. */
export function narrowNotice(name: string, taskLimit: TaskLimit, limit: TaskLimit): string | undefined {
  if (limit === null || limit === taskLimit) return undefined
  const begun = taskLimit === null ? 'all tasks' : `${count(taskLimit)} tasks`
  const here = limit === 1 ? 'the first one' : `the first ${count(limit)}`
  const next =
    taskLimit === null ? 'leave out --limit (limit) to finish it' : `--limit ${taskLimit} (limit) finishes it`
  return `run ${name} covers ${begun}: this launch runs ${here} and leaves the run open; ${next}, ${newRunOption} starts another run`
}

/** A run that had as many tasks as it asked for does not say how many there were. */
function addedNotice(
  name: string,
  before: { readonly tasks: number | undefined; readonly taskLimit: TaskLimit | undefined },
  total: TaskTotal,
): string | undefined {
  const { tasks, taskLimit } = before
  if (tasks === undefined || taskLimit === undefined || !total?.exact) return undefined
  if (taskLimit !== null && tasks >= taskLimit) return undefined
  if (total.count <= tasks) return undefined
  return `run ${name} began with ${count(tasks)} tasks and their source now has ${count(total.count)}: the added tasks run too; --limit ${tasks} (limit) leaves them out`
}

function missingNotice(name: string, missing: number, total: TaskTotal): string | undefined {
  if (missing === 0 || !total) return undefined
  const now = total.count + missing
  return `warning: run ${name} has ${count(now)} tasks and their source now has ${count(total.count)}: the run stays open; restore the tasks to finish it, ${newRunOption} starts a run of only the current tasks`
}
