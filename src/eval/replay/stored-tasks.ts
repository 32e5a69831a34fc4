import { readTasks, type LoadedEnvironment, type TaskItem, type TaskStream, type ValidTask } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { validate } from '../../schema/index.ts'
import { isDamage, type RunReader, type StoredTask } from '../../store/index.ts'
import type { StoredRunConfig } from './stored-config.ts'

/** What to do about a task that has changed: tasks may depend on options, too. */
const restoreTask = 'restore it, or leave out the --env (options) or --environment (environment) that changed it'

/** A task of a run. `problem` says why its rollouts cannot use it. */
export type KnownTask =
  | {
      readonly index: number
      readonly item: ValidTask
      /** Whether it is made from the row that the run keeps: the environment has it no more, or generates its tasks. */
      readonly isStored: boolean
      readonly problem?: undefined
    }
  | { readonly index: number; readonly problem: string }

export interface StoredTaskOptions {
  readonly reader: RunReader
  readonly config: StoredRunConfig
  readonly loaded: LoadedEnvironment
  readonly signal?: AbortSignal | undefined
}

export async function* knownTasks(run: StoredTaskOptions): AsyncGenerator<KnownTask, void, void> {
  await using tasks = new StoredTaskReader(run)
  for (const stored of run.reader.tasks()) yield await tasks.task(stored)
}

export async function knownTask(run: StoredTaskOptions, index: number): Promise<ValidTask> {
  const stored = run.reader.task(index)
  if (!stored) throw new MillraceError('run_mismatch', `the run has no task ${index}; it may be damaged`)
  await using tasks = new StoredTaskReader(run)
  const task = await tasks.task(stored)
  if (task.problem === undefined) return task.item
  throw new MillraceError('run_mismatch', `${task.problem}; ${restoreTask}`)
}

/**
 * Tasks of a run, asked for in their order. They are read again from the environment, no further than needed, so that a row that
 * was changed since is noticed: neither its old nor its new version is used. The row that the run keeps is used where the
 * environment has none to compare: it generates its tasks, does not have this one any more, or was given it with a request.
 */
class StoredTaskReader implements AsyncDisposable {
  readonly #run: StoredTaskOptions
  #stream: TaskStream | undefined
  #items: AsyncGenerator<TaskItem, void, void> | undefined

  constructor(run: StoredTaskOptions) {
    this.#run = run
  }

  async task(stored: StoredTask): Promise<KnownTask> {
    const { config, loaded, signal } = this.#run
    if (!config.isServed) this.#stream ??= await readTasks(loaded.environment, loaded.options, { signal })
    const isListed = this.#stream !== undefined && !this.#stream.isGenerated
    const listed = isListed ? await this.#given(stored.index) : undefined
    if (listed) return compared(listed, stored)
    const kept = await this.#kept(stored)
    if (kept) return kept
    const generated = isListed ? undefined : await this.#given(stored.index)
    const task = compared(generated, stored)
    if (task.problem === undefined) return task
    return { ...task, problem: `${task.problem}, and the run, made by an earlier Millrace, does not keep its row` }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#items?.return()
  }

  async #given(index: number): Promise<TaskItem | undefined> {
    this.#items ??= this.#stream?.[Symbol.asyncIterator]()
    try {
      for (;;) {
        const next = await this.#items?.next()
        if (!next || next.done) return undefined
        if (next.value.index === index) return next.value
      }
    } catch (error) {
      // Its file is gone, and all its tasks with it.
      if (error instanceof MillraceError && error.code === 'file_not_found') return undefined
      throw error
    }
  }

  async #kept({ index, id, digest }: StoredTask): Promise<KnownTask | undefined> {
    let row: string | undefined
    try {
      row = this.#run.reader.taskRowText(index)
    } catch (error) {
      if (isDamage(error)) return { index, problem: error.rawMessage }
      throw error
    }
    if (row === undefined) return undefined
    const validated = await validate(this.#run.loaded.environment.task, JSON.parse(row))
    if (validated.problem === undefined) {
      return { index, item: { index, id, digest, row, task: validated.value }, isStored: true }
    }
    const what = `the stored row of task ${index} (${id}) does not fit the environment's \`task\` schema`
    return { index, problem: `${what}: ${validated.problem}` }
  }
}

function compared(given: TaskItem | undefined, { index, id, digest }: StoredTask): KnownTask {
  if (!given) return { index, problem: `task ${index} (${id}) is no longer among the environment's tasks` }
  if (given.digest !== digest) {
    return { index, problem: `task ${index} (${id}) has changed since the run was made` }
  }
  return given.problem ? { index, problem: given.problem.rawMessage } : { index, item: given, isStored: false }
}
