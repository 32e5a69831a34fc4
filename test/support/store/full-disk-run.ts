/**
 * Fills a small disk with a run, then makes the disk larger and goes on. Prints what happened as one line of JSON. Expects to be
 * in a mount namespace of its own, with a tmpfs mounted on the folder it is given.
 */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MillraceError } from '../../../src/errors/index.ts'
import { readRunFile, runFiles, RunReader, RunStore } from '../../../src/store/index.ts'
import { newRun, openFiles, rolloutEntries } from './fixtures.ts'

const [mount = ''] = process.argv.slice(2)
const folder = join(mount, 'run')
const acknowledged: string[] = []

const full = await fill()
const leftOpen = openFiles(mount)
const whileFull = await codeOf(async () => {
  await using store = await RunStore.open({ folder })
  for (const entry of rolloutEntries(999_999, { messages: ['x'.repeat(200_000)] })) store.journal.append(entry)
  await store.journal.durable()
})
execFileSync('mount', ['-o', 'remount,size=64m', mount])
const resumed = await resume()
process.stdout.write(`${JSON.stringify({ full, leftOpen, whileFull, resumed })}\n`)

async function fill() {
  await using store = await RunStore.open({ folder, create: newRun() })
  const failed = once(store.failure, 'abort')
  const code = await codeOf(async () => {
    for (let task = 0; ; task += 1) {
      const messages = ['question', 'y'.repeat(3_000), `end of ${task}`]
      for (const entry of rolloutEntries(task, { messages })) store.journal.append(entry)
      if (task % 7 !== 0) continue
      await store.journal.durable()
      for (let done = acknowledged.length; done <= task; done += 1) acknowledged.push(`${done}-0`)
    }
  })
  await failed
  const later = await codeOf(async () => store.journal.durable())
  const { message } = store.failure.reason as MillraceError
  return {
    code,
    later,
    message,
    acknowledged: acknowledged.length,
    lost: lostFrom(store.reader),
  }
}

async function resume() {
  const found = RunReader.open(folder)
  const lostBefore = lostFrom(found)
  found[Symbol.dispose]()
  const healed = await RunStore.open({ folder })
  const ended = healed.reader.counts().ended
  for (const entry of rolloutEntries(1_000_000)) healed.journal.append(entry)
  await healed.finish('complete')
  const lines = readFileSync(join(folder, runFiles.lines), 'utf8').split('\n').length - 1
  const result = {
    lostBefore,
    lost: lostFrom(healed.reader),
    problems: healed.reader.integrity(),
    added: lines - ended,
  }
  await healed.close()
  return { ...result, state: readRunFile(folder)?.state }
}

function lostFrom(reader: RunReader): number {
  return acknowledged.filter((rollout) => !reader.hasEnded(rollout) || reader.nodes(rollout, 1).length !== 3).length
}

async function codeOf(work: () => Promise<unknown>): Promise<string> {
  try {
    await work()
    return 'none'
  } catch (error) {
    return error instanceof MillraceError ? error.code : String(error)
  }
}
