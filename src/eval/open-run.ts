import { randomInt } from 'node:crypto'
import { existsSync } from 'node:fs'
import { MillraceError } from '../errors/index.ts'
import { holdsGroups } from '../rollout/index.ts'
import { outcomeNames, outcomes, type Json } from '../schema/index.ts'
import { findRuns, latestUnfinished, provenance, readRunFile, redact, runFolder, RunStore } from '../store/index.ts'
import { describeDifference } from './_describe-difference.ts'
import type { RunInfo, RunOptions } from './evaluation.ts'
import { experimentOf, type ResolvedRun, type RunConfig } from './resolve-run.ts'

export interface OpenedRun {
  readonly store: RunStore
  readonly info: RunInfo
  /** What every draw of the run starts from; kept with it, so that a later sitting draws alike. */
  readonly seed: number
}

/** Finds the run to continue, or starts one, and takes its lock. */
export async function openRun(resolved: ResolvedRun, options: RunOptions, signal?: AbortSignal): Promise<OpenedRun> {
  const root = options.root ?? (process.env['MILLRACE_RUNS'] || 'runs')
  const notices: string[] = []
  const name = options.name ?? (await continuable(root, resolved, options)) ?? newName(root, resolved.config)
  const folder = runFolder(root, name)
  const existing = readRunFile(folder)
  if (existing) requireSameExperiment(name, existing.config, resolved.config, options)
  else if (options.resume === 'required') throw nothingToResume(root, name)
  const clean = redact(JSON.parse(JSON.stringify(resolved.config)) as Record<string, Json>, secretsOf(resolved.config))
  for (const path of clean.paths) notices.push(`${path} looks like a secret and is not stored with the run`)
  const drawSeed = resolved.config.seed ?? randomInt(2 ** 31)
  const store = await RunStore.open({
    folder,
    create: {
      name,
      configDigest: resolved.digest,
      config: { ...clean.value, drawSeed },
      provenance: { ...(await provenance()) },
    },
    ...(signal && { signal }),
  })
  try {
    if (options.retryFailed) {
      const failed = outcomeNames.filter((outcome) => !outcomes[outcome].scored)
      const count = await store.retryFailed({
        outcomes: failed,
        // What only lacks its score is read back from its journal and scored again: no model is asked.
        reopened: failed.filter((outcome) => outcomes[outcome].rule === 'rescore'),
        wholeGroups: holdsGroups(resolved.group),
      })
      notices.push(
        count === 0
          ? `run ${name} has no rollout without a score: there is nothing to run again`
          : `running again: ${quantity(count)} that ended without a score`,
      )
    }
    const resumed = store.reader.counts().ended
    if (store.isResumed) notices.push(`continuing run ${name}: ${quantity(resumed)} had ended`)
    const seed = Number(store.run.config['drawSeed'])
    return { store, info: { name, folder, resumed, notices }, seed }
  } catch (error) {
    await store.close()
    throw error
  }
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

function newName(root: string, config: RunConfig): string {
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-')
  const parts = [config.environment.name, config.model].map((part) =>
    part.replaceAll(/[^A-Za-z0-9._]+/g, '-').slice(0, 35),
  )
  const base = `${parts.join('--')}--${stamp}`.replace(/^[^A-Za-z0-9_]+/, '')
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? base : `${base}-${count}`
    if (!existsSync(runFolder(root, name))) return name
  }
}

function requireSameExperiment(name: string, stored: Partial<RunConfig>, given: RunConfig, options: RunOptions): void {
  if (options.resume === 'never') {
    throw new MillraceError(
      'run_mismatch',
      `a run named ${name} exists already; choose another name with --run, or leave out --new to continue it`,
    )
  }
  const before = experimentOf({ ...given, ...stored })
  const now = experimentOf(given)
  const changed = Object.keys(now).filter((key) => JSON.stringify(before[key]) !== JSON.stringify(now[key]))
  if (changed.length === 0) return
  const differences = changed.map((key) => describeDifference(key, before[key], now[key]))
  throw new MillraceError(
    'run_mismatch',
    `run ${name} was started with other settings: ${differences.join('; ')}. Repeat those (all are in its run.json), or choose another name with --run.`,
    { data: { run: name, changed: changed.join(',') } },
  )
}

function quantity(rollouts: number): string {
  return `${rollouts} rollout${rollouts === 1 ? '' : 's'}`
}

function nothingToResume(root: string, name: string | undefined): MillraceError {
  const what = name ? `a run named ${name}` : 'an unfinished run of this configuration'
  return new MillraceError(
    'run_not_found',
    `there is no ${what.replace(/^an? /, '')} in ${root} to continue; \`millrace list\` shows what there is`,
  )
}

/** The values of the keys this run uses, should one have found its way into a header or an option. */
function secretsOf(config: RunConfig): string[] {
  return config.models
    .flatMap((model) => model.backends.map(({ apiKeyEnv }) => process.env[apiKeyEnv]))
    .filter((secret) => secret !== undefined)
}
