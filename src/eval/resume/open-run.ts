import { randomInt } from 'node:crypto'
import { rmSync } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { environmentCode, type EnvironmentCode } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { gymRunName } from '../../nemo-gym/index.ts'
import { isJsonObject } from '../../schema/index.ts'
import {
  defaultRunsRoot,
  findRuns,
  latestUnfinished,
  type NewRun,
  provenance,
  readRunFile,
  reserveRunName,
  type RunFile,
  runFolder,
  RunStore,
} from '../../store/index.ts'
import type { RunOptions } from '../options.ts'
import type { ResolvedRun } from '../resolve-run.ts'
import { isSimulated, type RunConfig } from '../run-config.ts'
import { experimentChange, nearestRunNotice, notContinuedNotice, redacted } from './experiment-change.ts'

/** How many tasks a run has; null for all there are. A run has as many as its widest launch asked for. */
export type TaskLimit = number | null

export interface OpenedRun {
  readonly store: RunStore
  readonly name: string
  readonly folder: string
  /** The seed of every draw of the run; kept with it, so that a later launch draws the same. */
  readonly seed: number
  /** How many tasks the run has once this launch has begun. */
  readonly taskLimit: TaskLimit
  readonly formerTaskLimit: TaskLimit | undefined
  /** The environment's code as it is now; undefined if the environment is no module. */
  readonly code: EnvironmentCode | undefined
  readonly notices: readonly string[]
}

/** Finds the run to continue, or starts one, and takes its lock. The run's content is not changed until `resumeRun`. */
export async function openRun(resolved: ResolvedRun, options: RunOptions, signal?: AbortSignal): Promise<OpenedRun> {
  const root = options.root ?? defaultRunsRoot(resolved.env)
  const known = options.name ?? (await continuable(root, resolved, options))
  const name = known ?? reserveRunName(root, newName(resolved.config))
  const folder = runFolder(root, name)
  const existing = readRunFile(folder)
  if (existing?.config['kind'] === 'gateway') {
    const message = `run ${name} holds the sessions of a gateway; choose another name with --run (run.name)`
    throw new MillraceError('run_mismatch', message, { data: { run: name } })
  }
  if (existing) requireSameExperiment(name, existing, resolved, options)
  else if (options.resume === 'required' || options.retryFailed) throw nothingToResume(root, options.name)
  // `forkedFrom` is not redacted: its texts are in the journal as well, and a replay needs them.
  const { forkedFrom, ...asked } = resolved.config
  const clean = redacted(asked, resolved)
  const notices = clean.paths.map((path) => `${path} looks like a secret and is not stored with the run`)
  const { toolFormat } = resolved.config
  if (toolFormat && isSimulated(resolved.config)) {
    notices.push(`the simulator writes no tool calls in text (${toolFormat}): it will call none`)
  }
  if (!existing && options.name === undefined) notices.push(...(await othersBeside(root, name, resolved, options)))
  const { specifier } = resolved.loaded
  const code = specifier === undefined ? undefined : await environmentCode(specifier)
  const drawSeed = resolved.config.seed ?? randomInt(2 ** 31)
  const create: NewRun = {
    name,
    configDigest: resolved.digest,
    config: { ...clean.value, ...(forkedFrom && { forkedFrom: { ...forkedFrom } }), drawSeed },
    provenance: { ...(await provenance()), ...(code && { code }) },
  }
  const store = await RunStore.open({ folder, create, ...(signal && { signal }) }).catch((error: unknown) => {
    // The name was reserved for this run and is not used.
    if (known === undefined) rmSync(folder, { recursive: true, force: true })
    throw error
  })
  const formerTaskLimit = existing && taskLimitOf(existing)
  const taskLimit = widestTaskLimit(formerTaskLimit, resolved.config.limit)
  return { store, name, folder, seed: Number(store.run.config['drawSeed']), taskLimit, formerTaskLimit, code, notices }
}

async function continuable(root: string, resolved: ResolvedRun, options: RunOptions): Promise<string | undefined> {
  if (options.resume === 'never') return undefined
  const found = await latestUnfinished(root, resolved.digest)
  if (found) return found.name
  if (!options.retryFailed && options.resume !== 'required') return undefined
  const { runs } = await findRuns(root)
  const same = runs.find(({ run }) => run.configDigest === resolved.digest)
  if (same && options.retryFailed) return same.name
  const meant = options.retryFailed ? runs : runs.filter(({ run }) => run.state === 'unfinished')
  throw nothingToResume(root, undefined, nearestRunNotice(meant, resolved))
}

/** Notices about other runs: two terminals with one command are two runs, and two bills; an unfinished run may be lost work. */
async function othersBeside(
  root: string,
  name: string,
  resolved: ResolvedRun,
  { resume }: RunOptions,
): Promise<string[]> {
  const { runs } = await findRuns(root)
  const others = runs.filter(({ run }) => run.name !== name)
  const busy = others.find(({ run }) => run.configDigest === resolved.digest && run.state === 'running')
  return [
    busy && `run ${busy.name} of the same experiment is already in progress; this is a separate run, ${name}`,
    resume === 'never' ? undefined : notContinuedNotice(others, resolved),
  ].filter((notice) => notice !== undefined)
}

function newName(config: RunConfig): string {
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-')
  const parts = [gymRunName(config.environment) ?? config.environment.name, config.model].map((part) =>
    part.replaceAll(/[^A-Za-z0-9._]+/g, '-').slice(0, 35),
  )
  return `${parts.join('--')}--${stamp}`.replace(/^[^A-Za-z0-9_]+/, '')
}

function requireSameExperiment(name: string, existing: RunFile, resolved: ResolvedRun, options: RunOptions): void {
  if (options.resume === 'never') {
    throw new MillraceError(
      'run_mismatch',
      `a run named ${name} exists already; choose another name with --run (run.name), or leave out --new (run.resume) to continue it`,
    )
  }
  if (existing.configDigest === resolved.digest) return
  requireSameOrigin(name, existing, resolved)
  const { parts, text } = experimentChange(existing, resolved)
  throw new MillraceError(
    'run_mismatch',
    `run ${name} was started with other settings: ${text}. Repeat those (all are in its run.json), or choose another name with --run (run.name).`,
    { data: { run: name, changed: parts.join(',') } },
  )
}

/** A fork of another rollout is a different run, not this run with other settings: repeating its settings would not help. */
function requireSameOrigin(name: string, existing: RunFile, { config }: ResolvedRun): void {
  const { forkedFrom } = config
  if (!forkedFrom) return
  const { run, rollout, attempt } = forkedFrom
  const origin = existing.config['forkedFrom']
  const isSame =
    origin !== undefined &&
    isJsonObject(origin) &&
    origin['run'] === run &&
    origin['rollout'] === rollout &&
    origin['attempt'] === attempt
  if (isSame) return
  throw new MillraceError(
    'run_mismatch',
    `run ${name} is not a fork of rollout ${rollout} of run ${run}: choose another name with --run (run.name)`,
    { data: { run: name, changed: 'forkedFrom' } },
  )
}

function nothingToResume(root: string, name: string | undefined, nearest = ''): MillraceError {
  const what = name ? `run named ${name}` : 'unfinished run of this configuration'
  const next = nearest === '' ? '`millrace list` shows all runs' : nearest
  return new MillraceError('run_not_found', `there is no ${what} in ${root} to continue; ${next}`)
}

/** Closes a run that could not start: a new one is removed, an existing one keeps its state. */
export async function abortRun({ store, name, folder }: Pick<OpenedRun, 'store' | 'name' | 'folder'>): Promise<void> {
  if (store.absence()) return await store.close()
  if (store.isResumed) {
    await using _store = store
    const state = store.wasComplete ? 'complete' : 'unfinished'
    if (!store.failure.aborted) await store.finish(state, { workedMs: 0, ...endBefore(store) })
    return
  }
  const discarded = join(dirname(folder), `.${name}-${process.pid}`)
  try {
    // The name is free before the lock is.
    await rename(folder, discarded)
  } finally {
    await store.close()
  }
  await rm(discarded, { recursive: true, force: true })
}

/** The end of the launch before, as nothing has happened since; none if its completed results were taken back. */
function endBefore({ run, wasComplete }: OpenedRun['store']): { readonly end?: string } {
  const end = run.launches.at(-2)?.end
  return end === undefined || (end === 'complete' && !wasComplete) ? {} : { end }
}

function taskLimitOf({ config }: RunFile): TaskLimit {
  const { limit } = config
  return typeof limit === 'number' ? limit : null
}

function widestTaskLimit(before: TaskLimit | undefined, limit: TaskLimit): TaskLimit {
  if (before === undefined) return limit
  return limit === null || before === null ? null : Math.max(before, limit)
}
