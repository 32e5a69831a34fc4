import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { open, rm, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { formatBytes } from '../format/bytes.ts'
import { formatDuration } from '../format/duration.ts'
import type { Check } from './_check.ts'

const syncs = 20
/** A page of the database. */
const page = Buffer.alloc(4_096, 1)
/** Every turn waits for a sync; one that takes this long is felt even if many rollouts share it. */
const slowMs = 20
const littleRoom = 1e9

/** Checks how long the disk of the runs takes to sync, and how much room it has. */
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
    return {
      key: 'disk',
      name: 'disk',
      shown: `${folder} cannot be written`,
      facts: { folder: root, problem },
      advice: `No run can be kept there (${problem}): choose another folder with --runs.`,
    }
  }
}

function adviceFor(medianMs: number, freeBytes: number): string | undefined {
  if (freeBytes < littleRoom) return 'There is little room: millrace prune deletes old runs.'
  if (medianMs < slowMs) return undefined
  return 'Every turn waits for a sync: keep runs on a local disk (--runs), not on a network or a busy one.'
}

function nearestFolder(path: string): string {
  return existsSync(path) ? path : nearestFolder(dirname(path))
}

/** The times of some syncs, shortest first. */
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
