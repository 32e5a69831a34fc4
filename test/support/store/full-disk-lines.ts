/**
 * Writes results to a run whose `rollouts.jsonl` lies on a disk of its own, which fills up and has room again before the run is
 * closed. Prints what happened as one line of JSON. Expects to be in a mount namespace of its own, with a tmpfs mounted on the
 * first folder it is given; the run is in the second.
 */
import { readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MillraceError } from '../../../src/errors/index.ts'
import { runFiles, RunReader, RunStore } from '../../../src/store/index.ts'
import { newRun, rolloutEntries } from './fixtures.ts'

const [mount = '', folder = ''] = process.argv.slice(2)
const lines = join(folder, runFiles.lines)
const ballast = join(mount, 'ballast')
const codes: string[] = []
symlinkSync(join(mount, 'lines'), lines)
{
  await using store = await RunStore.open({ folder, create: newRun() })
  const add = async (task: number): Promise<void> => {
    store.journal.appendAll(rolloutEntries(task, { messages: ['y'.repeat(10_000)] }))
    await store.journal.durable()
  }
  await add(0)
  fillUp()
  await add(1).catch((error: unknown) => codes.push(error instanceof MillraceError ? error.code : String(error)))
  rmSync(ballast)
}
const ids = readFileSync(lines, 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => (JSON.parse(line) as { id: string }).id)
using reader = RunReader.open(folder)
const ended = Array.from(reader.ended(), ({ rollout }) => rollout)
process.stdout.write(`${JSON.stringify({ codes, ids, ended, problems: reader.integrity() })}\n`)

/** Leaves a page or so, so that a part of the next line still fits. */
function fillUp(): void {
  for (let bytes = 1024 * 1024; bytes >= 4096; bytes /= 2) {
    try {
      for (;;) writeFileSync(ballast, Buffer.alloc(bytes), { flag: 'a' })
    } catch {
      // As much as that does not fit any more.
    }
  }
}
