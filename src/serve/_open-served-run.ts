import { hash } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'
import { openRun, resolveRun, type OpenedRun, type ResolvedRun, type RunConfig } from '../eval/index.ts'
import type { Variables } from '../kit/index.ts'
import { defaultRunsRoot, findRuns, readRunFile, runFolder } from '../store/index.ts'
import type { ServiceOptions } from './service-options.ts'

/** The run a server works on: the newest of the same options that nobody works on, or a new one. Never an evaluation's. */
export async function openServedRun(options: ServiceOptions): Promise<{ resolved: ResolvedRun; opened: OpenedRun }> {
  const evaluated = await resolveRun(options, process.env, options.signal)
  // A server's tasks come from its clients, so that the same options make another run than they make for `evaluate`.
  const resolved: ResolvedRun = {
    ...evaluated,
    config: servedConfig(evaluated.config),
    digest: hash('sha256', `serve ${evaluated.digest}`).slice(0, 16),
  }
  requireServedRun(resolved, options)
  await requireNobodyAtWork(resolved, options)
  const { run = {}, signal } = options
  return { resolved, opened: await openRun(resolved, run, { ...(signal && { signal }) }) }
}

/** What is stored with the run says whose it is. */
function servedConfig(config: RunConfig): RunConfig & { readonly isServed: true } {
  return { ...config, isServed: true }
}

/**
 * Said again, a command means the run it made before. A second server of it would have one of its own, and the next start
 * would find that one, without the requests that the first had accepted.
 */
async function requireNobodyAtWork({ digest, env }: ResolvedRun, { run }: ServiceOptions): Promise<void> {
  if (run?.name !== undefined || run?.resume === 'never') return
  const { runs } = await findRuns(rootOf(run, env))
  const busy = runs.find((found) => found.run.configDigest === digest && found.run.state === 'running')
  if (!busy) return
  throw new MillraceError(
    'run_in_use',
    `a server with these settings is at work already, on run ${busy.name}; stop it, or give this one a run of its own with --run <name> (run.name)`,
    { data: { run: busy.name } },
  )
}

function requireServedRun({ env }: ResolvedRun, { run }: ServiceOptions): void {
  if (run?.name === undefined) return
  const existing = readRunFile(runFolder(rootOf(run, env), run.name))
  if (!existing || existing.config['isServed'] === true) return
  throw new MillraceError(
    'run_mismatch',
    `run ${run.name} belongs to an evaluation; choose another name for the server's run with --run (run.name)`,
    { data: { run: run.name } },
  )
}

function rootOf(run: ServiceOptions['run'], env: Variables): string {
  return run?.root ?? defaultRunsRoot(env)
}
