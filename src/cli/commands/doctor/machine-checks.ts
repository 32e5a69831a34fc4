import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { open, rm, statfs } from 'node:fs/promises'
import { availableParallelism, cpus, loadavg, totalmem } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { LoopLag, sleep } from '../../../kit/index.ts'
import type { Json } from '../../../schema/index.ts'
import { formatBytes, formatCount, formatDuration } from '../../terminal/format.ts'

/** With fewer descriptors, connections wait for each other from a few hundred concurrent rollouts on. */
const fewDescriptors = 4_096
/** The memory that a run of some thousand concurrent rollouts needs, with room for an environment. */
const littleMemory = 2e9

/** Checks the share of the machine that this process was given. It only asks the system, and measures nothing. */
export function machineChecks(): readonly Check[] {
  return [processors(), memory(), descriptors(), node()]
}

function processors(): Check {
  const usable = availableParallelism()
  const present = cpus().length
  const [load = 0] = loadavg()
  const of = usable < present ? ` of ${present}` : ''
  return {
    key: 'processors',
    name: 'processors',
    shown: `${usable}${of}, load ${load.toFixed(1)}`,
    facts: { usable, present, load },
    ...(load > usable && {
      advice: 'The load is higher than the number of processors: runs will be slower than necessary.',
    }),
  }
}

function memory(): Check {
  const constrained = process.constrainedMemory()
  // Without a limit the system reports 0, or a huge number.
  const total = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem()
  const available = process.availableMemory()
  return {
    key: 'memory',
    name: 'memory',
    shown: `${formatBytes(total)}, ${formatBytes(available)} available`,
    facts: { totalBytes: total, availableBytes: available },
    ...(available < littleMemory && {
      advice: 'Little memory is available: run fewer rollouts at once (-c), or fewer workers (--workers).',
    }),
  }
}

function descriptors(): Check {
  // Only the process report has this limit on every system.
  const report = process.report.getReport() as {
    userLimits?: { open_files?: Record<'soft' | 'hard', number | string> }
  }
  const { soft, hard } = report.userLimits?.open_files ?? { soft: 'unknown', hard: 'unknown' }
  return {
    key: 'openFiles',
    name: 'open files',
    shown: `${shownLimit(soft)} (hard limit ${shownLimit(hard)})`,
    facts: { soft, hard },
    ...(typeof soft === 'number' &&
      soft < fewDescriptors && {
        advice:
          'Half of them are for connections to backends, and further requests wait: raise the hard limit (ulimit -n 65536).',
      }),
  }
}

function shownLimit(limit: number | string): string {
  return typeof limit === 'number' ? formatCount(limit) : limit
}

function node(): Check {
  const { version, platform, arch } = process
  return { key: 'node', name: 'node', shown: `${version} on ${platform} ${arch}`, facts: { version, platform, arch } }
}

const syncs = 20
/** A page of the database. */
const page = Buffer.alloc(4_096, 1)
/** Every turn waits for a sync; one that takes this long is felt even if many rollouts share it. */
const slowMs = 20
const littleRoom = 1e9

export async function diskCheck(root: string): Promise<Check> {
  const folder = nearestFolder(root)
  try {
    const times = await syncTimes(folder)
    const { bavail, bsize } = await statfs(folder)
    const freeBytes = bavail * bsize
    const medianMs = times[Math.floor(times.length / 2)] ?? 0
    const worstMs = times.at(-1) ?? 0
    const advice = adviceFor(medianMs, freeBytes)
    return {
      key: 'disk',
      name: 'disk',
      shown: `${formatDuration(medianMs)} a sync (worst ${formatDuration(worstMs)}), ${formatBytes(freeBytes)} free, ${root}`,
      facts: { folder: root, medianMs, worstMs, freeBytes },
      ...(advice !== undefined && { advice }),
    }
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error)
    const advice = `No run can be kept there (${problem}): choose another folder with --runs.`
    return { key: 'disk', name: 'disk', shown: `${folder} cannot be written`, facts: { folder: root, problem }, advice }
  }
}

function adviceFor(medianMs: number, freeBytes: number): string | undefined {
  if (freeBytes < littleRoom) return 'Little space is left: millrace prune deletes old runs.'
  if (medianMs < slowMs) return undefined
  return 'Every turn waits for a sync: keep runs on a local disk that is not busy (--runs), not on a network disk.'
}

function nearestFolder(path: string): string {
  return existsSync(path) ? path : nearestFolder(dirname(path))
}

async function syncTimes(folder: string): Promise<number[]> {
  const path = join(folder, `.millrace-doctor-${randomUUID()}`)
  const file = await open(path, 'wx')
  try {
    const times: number[] = []
    for (let sync = 0; sync < syncs; sync += 1) {
      const startedAt = performance.now()
      await file.write(page)
      await file.datasync()
      times.push(performance.now() - startedAt)
    }
    return times.toSorted((one, other) => one - other)
  } finally {
    await file.close()
    await rm(path, { force: true })
  }
}

const measuredMs = 500
/** An idle event loop is this late only if the machine has no processor time for it. */
const lateMs = 20

/** Checks how late a timer fires while nothing runs: no program on this machine can do better. */
export async function lagCheck(): Promise<Check> {
  using lag = new LoopLag(0)
  await sleep(measuredMs)
  const { p99Ms, maxMs } = lag.snapshot()
  return {
    key: 'timerLag',
    name: 'timer lag',
    shown: `${formatDuration(p99Ms)} p99, ${formatDuration(maxMs)} at worst, at rest`,
    facts: { p99Ms, maxMs },
    ...(p99Ms > lateMs && {
      advice: 'This process waits for a processor: check which other processes run on this machine.',
    }),
  }
}

/** The result of one check: what was found, and what to do about it if it will cause trouble. */
export interface Check {
  readonly key: string
  readonly name: string
  readonly shown: string
  readonly facts: Readonly<Record<string, Json>>
  /** Given only if something limits what this machine could do. */
  readonly advice?: string
}
