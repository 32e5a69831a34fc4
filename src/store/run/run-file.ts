import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { jsonObjectSchema, safeParse } from '../../schema/index.ts'
import { writeAtomically } from './atomic-write.ts'
import { folderFailure } from './failures.ts'
import { fileSize, runFiles } from './run-folder.ts'

const runFileVersion = 1
/** Only the latest launches are kept: a run may be killed and resumed all day. */
const maxLaunches = 200

const launchSchema = z.object({
  startedAt: z.string(),
  endedAt: z.string().exactOptional(),
  /** The time from the first rollout on, as the summary says it; opening models, tools and workers comes before. */
  workedMs: z.number().exactOptional(),
  /** How many model calls were made, and how many requests they took. */
  sent: z.object({ calls: z.number(), tries: z.number() }).exactOptional(),
  /** How the launch ended: `complete`, `drained`, `stopped`, ... It was cut off if there is none. */
  end: z.string().exactOptional(),
})

const runFileSchema = z.object({
  schemaVersion: z.number(),
  name: z.string(),
  createdAt: z.string(),
  /** Two runs with one digest do the same work, so one can continue the other. */
  configDigest: z.string(),
  config: jsonObjectSchema,
  provenance: jsonObjectSchema,
  /** `running` is also what a killed process leaves behind; `findRuns` tells the two apart by the lock. */
  state: z.enum(['running', 'unfinished', 'complete']),
  launches: z.array(launchSchema),
})

/** `run.json`: what the run is and how far it got. Times are ISO 8601. */
export type RunFile = z.infer<typeof runFileSchema>
export type RunState = RunFile['state']

/** The description of a new run; its config has no secrets. */
export type NewRun = Pick<RunFile, 'name' | 'configDigest' | 'config' | 'provenance'>

export function newRunFile(run: NewRun): RunFile {
  const { name, ...described } = run
  const createdAt = new Date().toISOString()
  return { schemaVersion: runFileVersion, name, createdAt, ...described, state: 'running', launches: [] }
}

export function readRunFile(folder: string): RunFile | undefined {
  const path = join(folder, runFiles.run)
  let text
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw folderFailure(error, folder)
  }
  return parseRunFile(text, path)
}

export function writeRunFile(folder: string, file: RunFile): void {
  const text = `${JSON.stringify({ ...file, launches: file.launches.slice(-maxLaunches) }, null, 2)}\n`
  try {
    writeAtomically(join(folder, runFiles.run), text)
  } catch (error) {
    throw folderFailure(error, folder)
  }
}

function parseRunFile(text: string, path: string): RunFile {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw unreadable(`${path} is not JSON`, error)
  }
  const version = (value as { schemaVersion?: unknown } | null)?.schemaVersion
  if (typeof version === 'number' && version > runFileVersion) {
    throw new MillraceError(
      'store_version',
      `${path} was written by a newer Millrace (version ${version}, this one knows ${runFileVersion}); update millrace`,
      { data: { version, supported: runFileVersion } },
    )
  }
  const parsed = safeParse(runFileSchema, value)
  if (parsed.success) return parsed.data
  throw unreadable(`${path} does not describe a run`, parsed.error)
}

function unreadable(problem: string, cause: unknown): MillraceError {
  const message = `${problem}; restore it, or start another run with --run <name> (run.name)`
  return new MillraceError('store_failed', message, { cause })
}

/** A run that is starting, or was killed while it was, has no journal yet; it has no results, and no launch has ended. */
export function lostJournalReason(folder: string, run: RunFile | undefined): string | undefined {
  if (fileSize(join(folder, runFiles.lines)) > 0) return `has records in ${runFiles.lines}`
  return run?.launches.some(({ endedAt }) => endedAt !== undefined) ? 'was worked on' : undefined
}
