import { existsSync, statSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import type { ForkOrigin } from '../../eval/index.ts'
import { nearestNames, type Variables } from '../../kit/index.ts'
import { isJsonObject, type Json } from '../../schema/index.ts'
import { defaultRunsRoot, findRuns, runFiles, runFolder, RunReader, type FoundRun } from '../../store/index.ts'
import { shellQuote } from '../format/shell-quote.ts'
import type { CommandIo } from '../process/io.ts'
import { unreadSpool } from './spool-losses.ts'

interface Place {
  readonly cwd: string
  readonly env: Variables
}

/** The folder that holds runs. It need not exist yet, but its path must not lead through a file. */
export function runsRoot(flag: string | undefined, { cwd, env }: Place): string {
  const root = resolve(cwd, flag ?? defaultRunsRoot(env))
  let path = root
  let stats = statSync(path, { throwIfNoEntry: false })
  while (!stats) {
    path = dirname(path)
    stats = statSync(path, { throwIfNoEntry: false })
  }
  if (stats.isDirectory()) return root
  throw new MillraceError(
    'folder_unwritable',
    `${root} cannot hold runs: ${path} is a file, not a folder; choose another with --runs`,
  )
}

/** The folder of runs in a message that says it holds none: it may be the name of the folder that is wrong. */
export function emptyRootText(root: string): string {
  return existsSync(root) ? root : `${root}, which is not there`
}

/** The name of a run in a command: its plain name if it is in the default folder, else its path, which always works. */
export function runReference(folder: string, { cwd, env }: Place): string {
  const isInDefaultRoot = resolve(cwd, dirname(folder)) === resolve(cwd, defaultRunsRoot(env))
  return isInDefaultRoot ? basename(folder) : shellQuote([folder])
}

/** Stands for the newest run of the runs folder, unless a run has that name. */
export const latestName = 'latest'

/** Finds a run by its name below the root, by the path of its folder, or the newest one below the root (`latest`). */
export async function locateRun(
  nameOrPath: string,
  root: string,
  { cwd, env, program }: Pick<CommandIo, 'cwd' | 'env' | 'program'>,
): Promise<FoundRun> {
  const path = resolve(cwd, nameOrPath)
  const isPath = nameOrPath.includes('/') || existsSync(join(path, runFiles.run))
  const folder = isPath ? path : runFolder(root, nameOrPath)
  const parent = dirname(folder)
  const { runs, broken } = await findRuns(parent)
  const name = basename(folder)
  const found = runs.find((run) => run.name === name)
  if (found) return found
  const isLatest = nameOrPath === latestName
  const [newest] = runs
  if (isLatest && newest) return newest
  if (isLatest && broken.length === 0) {
    throw new MillraceError('run_not_found', `there is no run in ${emptyRootText(parent)}; ${program} eval makes one`)
  }
  const problem = broken.find((run) => run.name === name)?.problem
  if (problem !== undefined) throw new MillraceError('store_failed', `run ${name} cannot be read: ${problem}`)
  const near = nearestNames(
    name,
    runs.map((run) => run.name),
  )
  const isDefaultRoot = parent === resolve(cwd, defaultRunsRoot(env))
  const list = isDefaultRoot ? 'list' : `list --runs ${shellQuote([parent])}`
  const hint = near.length > 0 ? `did you mean ${near.join(' or ')}?` : `${program} ${list} shows those there are`
  throw new MillraceError('run_not_found', `there is no run ${name} in ${parent}; ${hint}`)
}

/** Reads a run, and tells if its spool could not be brought in. Throws `store_failed` if its database cannot be read. */
export async function readRun<Result>(
  found: FoundRun,
  { stderr }: Pick<CommandIo, 'stderr'>,
  read: (reader: RunReader) => Result | Promise<Result>,
): Promise<Result> {
  const { name, folder } = found
  try {
    using reader = RunReader.open(folder)
    // Those who read a gateway's run tell all of its losses together.
    if (!isGatewayRun(found)) for (const loss of unreadSpool(reader)) void stderr.line(loss)
    return await read(reader)
  } catch (error) {
    if (!(error instanceof Error) || (error as NodeJS.ErrnoException).code !== 'ERR_SQLITE_ERROR') throw error
    throw new MillraceError(
      'store_failed',
      `the records of run ${name} cannot be read: ${join(folder, runFiles.database)}: ${error.message}; restore that file, or delete the folder`,
      { cause: error },
    )
  }
}

/** Whether a run holds the sessions of a gateway, instead of rollouts. */
export function isGatewayRun({ run }: FoundRun): boolean {
  return run.config['kind'] === 'gateway'
}

/**
 * How the last sitting of a gateway or server that is not running ended. Such a run is never complete, so this tells one
 * that was drained from one that was cut off, for which it is undefined.
 */
export function servingEnd(found: FoundRun): string | undefined {
  const { state, sittings, config } = found.run
  const isServing = isGatewayRun(found) || config['isServed'] === true
  return isServing && state === 'unfinished' ? sittings.at(-1)?.end : undefined
}

/** The parts of a run's stored configuration that commands show; older or foreign files may lack any of them. */
export interface StoredConfig {
  readonly environment: string
  readonly model: string
  readonly attempts: number
  readonly passThreshold: number
  /** Whether the run is a server's, whose requests decide how many attempts they want. */
  readonly isServed: boolean
  readonly forkedFrom?: ForkOrigin
}

export function storedConfig(found: FoundRun): StoredConfig {
  const { environment, model, models, attempts, passThreshold, isServed, forkedFrom } = found.run.config
  if (isGatewayRun(found)) {
    return { environment: 'gateway', model: namesOf(models), attempts: 1, passThreshold: 1, isServed: false }
  }
  const name =
    typeof environment === 'object' && environment !== null && 'name' in environment ? environment['name'] : environment
  return {
    environment: typeof name === 'string' ? name : '?',
    model: typeof model === 'string' ? model : '?',
    attempts: typeof attempts === 'number' ? attempts : 1,
    passThreshold: typeof passThreshold === 'number' ? passThreshold : 1,
    isServed: isServed === true,
    ...originIn(forkedFrom),
  }
}

function originIn(value: Json | undefined): Pick<StoredConfig, 'forkedFrom'> {
  if (value === undefined || !isJsonObject(value)) return {}
  const { run, rollout, turn } = value
  if (typeof run !== 'string' || typeof rollout !== 'string' || typeof turn !== 'number') return {}
  return { forkedFrom: { run, rollout, turn } }
}

function namesOf(models: unknown): string {
  const names = Array.isArray(models)
    ? models.flatMap((model: unknown) =>
        typeof model === 'object' && model !== null && 'name' in model ? [String(model.name)] : [],
      )
    : []
  return names.join(', ') || '?'
}
