import { hash } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'
import { openRun, resolveRun, type OpenedRun, type ResolvedRun, type RunConfig } from '../eval/index.ts'
import { readRunFile, runFolder } from '../store/index.ts'
import type { ServiceOptions } from './service-options.ts'

/** The run a server works on: the newest of the same options that nobody works on, or a new one. Never an evaluation's. */
export async function openServedRun(options: ServiceOptions): Promise<{ resolved: ResolvedRun; opened: OpenedRun }> {
  const evaluated = await resolveRun(options, process.env)
  // A server's tasks come from its clients, so that the same options make another run than they make for `evaluate`.
  const resolved: ResolvedRun = {
    ...evaluated,
    config: servedConfig(evaluated.config),
    digest: hash('sha256', `serve ${evaluated.digest}`).slice(0, 16),
  }
  requireServedRun(options)
  return { resolved, opened: await openRun(resolved, options.run ?? {}, options.signal) }
}

/** What is stored with the run says whose it is. */
function servedConfig(config: RunConfig): RunConfig & { readonly isServed: true } {
  return { ...config, isServed: true }
}

function requireServedRun({ run }: ServiceOptions): void {
  if (run?.name === undefined) return
  const existing = readRunFile(runFolder(run.root ?? (process.env['MILLRACE_RUNS'] || 'runs'), run.name))
  if (!existing || existing.config['isServed'] === true) return
  throw new MillraceError(
    'run_mismatch',
    `run ${run.name} belongs to an evaluation; choose another name for the server's run with --run`,
    { data: { run: run.name } },
  )
}
