import { randomInt } from 'node:crypto'
import { rmSync } from 'node:fs'
import { environmentCode } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { holdsGroups } from '../rollout/index.ts'
import { outcomeNames, outcomes, isJsonObject } from '../schema/index.ts'
import {
  defaultRunsRoot,
  findRuns,
  latestUnfinished,
  provenance,
  readRunFile,
  reserveRunName,
  runFolder,
  RunStore,
  type NewRun,
  type RunFile,
  type RunReader,
} from '../store/index.ts'
import { changedFiles, codeChangeNotice } from './code-change.ts'
import { experimentChange, notContinuedNotice } from './experiment-change.ts'
import { giveUpRun } from './give-up-run.ts'
import type { RunInfo, RunOptions } from './evaluation.ts'
import { redacted } from './_redacted-config.ts'
import type { ResolvedRun, RunConfig } from './resolve-run.ts'
import { extentOf, narrowNotice, widestExtent, type RunExtent } from './run-extent.ts'

export interface OpenedRun {
  readonly store: RunStore
  readonly info: RunInfo
  /** What every draw of the run starts from; kept with it, so that a later sitting draws alike. */
  readonly seed: number
  /** What it is of once this sitting has begun. */
  readonly extent: RunExtent
  /** What that was before this sitting; undefined if there was no run. */
  readonly formerExtent: RunExtent | undefined
  /** Files of its code that are not what they were when it began. */
  readonly changedCode: readonly string[]
  /** Nothing of what it is of was open before this sitting: doing less than all of it leaves it complete. */
  readonly wasComplete: boolean
}

/** Finds the run to continue, or starts one, and takes its lock. */
export async function openRun(resolved: ResolvedRun, options: RunOptions, signal?: AbortSignal): Promise<OpenedRun> {
  const root = options.root ?? defaultRunsRoot(resolved.env)
  const notices: string[] = []
  const known = options.name ?? (await continuable(root, resolved, options))
  const name = known ?? reserveRunName(root, newName(resolved.config))
  const folder = runFolder(root, name)
  const existing = readRunFile(folder)
  if (existing) requireSameExperiment(name, existing, resolved, options)
  else if (options.resume === 'required') throw nothingToResume(root, name)
  const clean = redacted(resolved.config, resolved)
  for (const path of clean.paths) notices.push(`${path} looks like a secret and is not stored with the run`)
  notices.push(...unwrittenCalls(resolved.config))
  const { specifier } = resolved.loaded
  const code = specifier === undefined ? undefined : await environmentCode(specifier)
  const drawSeed = resolved.config.seed ?? randomInt(2 ** 31)
  const create: NewRun = {
    name,
    configDigest: resolved.digest,
    config: { ...clean.value, drawSeed },
    provenance: { ...(await provenance()), ...(code && { code }) },
  }
  const store = await RunStore.open({ folder, create, ...(signal && { signal }) }).catch((error: unknown) => {
    // A name that was taken for this run and is not used.
    if (known === undefined) rmSync(folder, { recursive: true, force: true })
    throw error
  })
  try {
    const { limit } = resolved.config
    const formerExtent = existing && extentOf(existing)
    const extent = widestExtent(formerExtent, limit)
    if (options.retryFailed) {
      const count = await reopenFailed(store, resolved.config)
      notices.push(
        count === 0
          ? `run ${name} has no rollout without a score: there is nothing to run again`
          : `running again: ${quantity(count)} that ended without a score`,
      )
    }
    const wasComplete = store.wasComplete && formerExtent === extent
    const resumed = store.reader.counts().ended
    const isLeft = wasComplete || resumed > 0 || isUnderWay(store.reader)
    // What is left of no earlier sitting is all of the code that runs now, whatever it began with.
    if (code && store.isResumed && !isLeft) store.amend({ provenance: { code, changedCode: [] } })
    const changedCode = code ? changedFiles(store.run.provenance['code'], code) : []
    if (store.isResumed) {
      // More may be asked of it now: its tasks may have become more.
      const found = wasComplete ? `run ${name} was complete` : `continuing run ${name}`
      notices.push(`${found}: ${quantity(resumed)} had ended`)
      const narrow = wasComplete ? undefined : narrowNotice(name, extent, limit)
      if (narrow !== undefined) notices.push(narrow)
      const changed = wasComplete ? undefined : codeChangeNotice(name, changedCode)
      if (changed !== undefined) notices.push(changed)
    } else if (options.name === undefined) {
      notices.push(...(await othersBeside(root, name, resolved, options)))
    }
    const seed = Number(store.run.config['drawSeed'])
    return { store, info: { name, folder, resumed, notices }, seed, extent, formerExtent, changedCode, wasComplete }
  } catch (error) {
    await giveUpRun({ store, info: { name, folder } })
    throw error
  }
}

/** Whether a rollout goes on, or is only scored again, from what an earlier sitting recorded of it. */
function isUnderWay(reader: RunReader): boolean {
  for (const { state } of reader.unfinished()) if (state !== 'discarded') return true
  return false
}

/** Takes back what ended without a score; says how many. */
async function reopenFailed(store: RunStore, { group }: RunConfig): Promise<number> {
  const failed = outcomeNames.filter((outcome) => !outcomes[outcome].scored)
  return await store.retryFailed({
    outcomes: failed,
    // What only lacks its score is read back from its journal, where its tools allow that, and scored again.
    reopened: failed.filter((outcome) => outcomes[outcome].rule === 'rescore'),
    wholeGroups: holdsGroups(group),
  })
}

/** The run that the same command, said again, means. */
async function continuable(root: string, resolved: ResolvedRun, options: RunOptions): Promise<string | undefined> {
  if (options.resume === 'never') return undefined
  const found = await latestUnfinished(root, resolved.digest)
  if (found) return found.name
  if (options.retryFailed || options.resume === 'required') {
    const { runs } = await findRuns(root)
    const same = runs.find(({ run }) => run.configDigest === resolved.digest)
    if (same && options.retryFailed) return same.name
    throw nothingToResume(root, undefined)
  }
  return undefined
}

/** What a new run leaves aside: two terminals with one command are two runs, and two bills, and half a run may be lost work. */
async function othersBeside(
  root: string,
  name: string,
  resolved: ResolvedRun,
  { resume }: RunOptions,
): Promise<string[]> {
  const { runs } = await findRuns(root)
  const others = runs.filter(({ run }) => run.name !== name)
  const busy = others.find(({ run }) => run.configDigest === resolved.digest && run.state === 'running')
  const aside = resume === 'never' ? undefined : notContinuedNotice(others, resolved)
  return [
    ...(busy ? [`run ${busy.name} of the same experiment is at work already; this is another one, ${name}`] : []),
    ...(aside === undefined ? [] : [aside]),
  ]
}

function newName(config: RunConfig): string {
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-')
  const parts = [config.environment.name, config.model].map((part) =>
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

/** A run that goes on from something else is no other setting of this one, and repeating its settings would not help. */
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

function quantity(rollouts: number): string {
  return `${rollouts.toLocaleString('en-US')} rollout${rollouts === 1 ? '' : 's'}`
}

function nothingToResume(root: string, name: string | undefined): MillraceError {
  const what = name ? `a run named ${name}` : 'an unfinished run of this configuration'
  return new MillraceError(
    'run_not_found',
    `there is no ${what.replace(/^an? /, '')} in ${root} to continue; \`millrace list\` shows what there is`,
  )
}

/** Such a run would work through all its tasks without a single tool call. */
function unwrittenCalls({ models, model, toolFormat }: RunConfig): string[] {
  const isSimulated = models.some(({ name, simulator }) => name === model && simulator !== undefined)
  return toolFormat && isSimulated
    ? [`the simulator writes no tool calls in text (${toolFormat}): it will call none`]
    : []
}
