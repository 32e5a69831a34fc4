import { existsSync, statSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { z } from 'zod'
import { namedAgentSchema } from '../../agents/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { nearestNames, type Variables } from '../../kit/index.ts'
import { defaultRunsRoot, findRuns, type FoundRun, runFiles, runFolder, RunReader } from '../../store/index.ts'
import { formatCount, formatQuantity, shellQuote } from '../terminal/format.ts'
import type { CommandIo } from '../terminal/io.ts'

interface RunsContext {
  readonly cwd: string
  readonly env: Variables
}

/** The folder that holds runs. It need not exist yet, but its path must not lead through a file. */
export function runsRoot(flag: string | undefined, { cwd, env }: RunsContext): string {
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
  return existsSync(root) ? root : `${root}, which does not exist`
}

/** The name of a run in a command: its plain name if it is in the default folder, else its path, which always works. */
export function runReference(folder: string, { cwd, env }: RunsContext): string {
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
  const hint = near.length > 0 ? `did you mean ${near.join(' or ')}?` : `${program} ${list} shows all runs`
  throw new MillraceError('run_not_found', `there is no run ${name} in ${parent}; ${hint}`)
}

export async function readRun<Result>(
  found: FoundRun,
  read: (reader: RunReader) => Result | Promise<Result>,
): Promise<Result> {
  const { name, folder } = found
  try {
    using reader = RunReader.open(folder)
    return await read(reader)
  } catch (error) {
    if (!(error instanceof Error) || (error as NodeJS.ErrnoException).code !== 'ERR_SQLITE_ERROR') throw error
    throw new MillraceError(
      'store_failed',
      `the records of run ${name} cannot be read: ${join(folder, runFiles.database)}: ${error.message}; restore that file, recover what can be read with \`sqlite3 ${runFiles.database} ".recover"\`, or delete the folder`,
      { cause: error },
    )
  }
}

export function isGatewayRun({ run }: FoundRun): boolean {
  return run.config['kind'] === 'gateway'
}

/** How the last launch of a gateway or server ended; undefined if it runs or was cut off. Such a run is never complete. */
export function servingEnd(found: FoundRun): string | undefined {
  const { state, launches, config } = found.run
  const isServing = isGatewayRun(found) || config['isServed'] === true
  return isServing && state === 'unfinished' ? launches.at(-1)?.end : undefined
}

const named = z.object({ name: z.string() })

/** The parts of a run's stored configuration that commands show; older or foreign files may lack any of them. */
const storedConfigSchema = z.object({
  environment: z.union([z.string(), named.transform(({ name }) => name)]).catch('?'),
  model: z.string().catch('?'),
  attempts: z.number().catch(1),
  passThreshold: z.number().catch(1),
  agent: namedAgentSchema.optional().catch(undefined),
  /** Whether the run is a server's, whose requests decide how many attempts they want. */
  isServed: z.boolean().catch(false),
  forkedFrom: z.object({ run: z.string(), rollout: z.string(), turn: z.number() }).optional().catch(undefined),
})

export function storedConfig(found: FoundRun): z.infer<typeof storedConfigSchema> {
  const config = storedConfigSchema.parse(found.run.config)
  if (!isGatewayRun(found)) return config
  const models = z.array(named).catch([]).parse(found.run.config['models'])
  return { ...config, environment: 'gateway', model: models.map(({ name }) => name).join(', ') || '?' }
}

/** How a run that is not complete goes on. Its command line is not kept with it, so this can only say which one it was. */
export function nextStep({ name, run }: FoundRun): string {
  if (run.state === 'running') return 'a process is working on it'
  const more = run.launches.at(-1)?.end === 'max_cost' ? ' and a higher --max-cost' : ''
  return `the command that started it, with --run ${name}${more}, continues it`
}

/** How many rollouts a run is to have in all, if that is known (a server's clients decide) and more than have ended. */
export function plannedRollouts(found: FoundRun, ended: number): { readonly planned?: number } {
  const { attempts, forkedFrom } = storedConfig(found)
  const { state, provenance } = found.run
  const tasks = forkedFrom ? 1 : provenance['tasks']
  if (state === 'complete' || typeof tasks !== 'number' || tasks * attempts <= ended) return {}
  return { planned: tasks * attempts }
}

export function howFar(found: FoundRun, ended: number): string {
  const { planned } = plannedRollouts(found, ended)
  const count =
    planned === undefined
      ? formatQuantity(ended, 'rollout')
      : `${formatCount(ended)} of ${formatQuantity(planned, 'rollout')}`
  return `${count} ended so far; ${nextStep(found)}`
}
