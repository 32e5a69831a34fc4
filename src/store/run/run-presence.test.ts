import { once } from 'node:events'
import {
  closeSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { runFiles } from './run-folder.ts'
import { RunPresence } from './run-presence.ts'
import { RunStore } from '../run-store.ts'
import { newRun, rolloutEntries, temporaryFolder } from '../../../test/support/store/fixtures.ts'

/** The files of another run that has come to lie at the path of a deleted one. */
const foreign = [runFiles.database, runFiles.lockOwner, runFiles.run]

const lossWays: {
  what: string
  lose: (folder: string) => void
  message: RegExp
  left: unknown
  foreign?: readonly string[]
}[] = [
  {
    what: 'a folder that is deleted',
    lose: (folder: string) => rmSync(folder, { recursive: true }),
    message: /run was deleted during the run: no results are kept$/,
    left: undefined,
  },
  {
    what: 'a folder that is moved',
    lose: (folder: string) => renameSync(folder, `${folder}-moved`),
    message: /run was moved to .*run-moved during the run; .*: put it back, then run the same again$/,
    left: undefined,
  },
  {
    what: 'a folder that is replaced',
    lose: (folder: string) => {
      rmSync(folder, { recursive: true })
      mkdirSync(folder)
      for (const name of foreign) writeFileSync(join(folder, name), 'foreign')
    },
    message: /run was deleted during the run: no results are kept$/,
    left: foreign,
    foreign,
  },
  {
    what: 'a database that is deleted',
    lose: (folder: string) => rmSync(join(folder, runFiles.database)),
    message:
      /journal\.sqlite in .* was deleted .*: rollouts\.jsonl still has the results up to then, but the run cannot/,
    left: expect.arrayContaining([runFiles.run, runFiles.lines]),
  },
]

test.each(lossWays)('$what ends the run at the next commit, and nothing is written there', async (loss) => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  await using store = await RunStore.open({ folder, create: newRun() })
  store.journal.appendAll(rolloutEntries(0))
  await store.journal.durable()
  loss.lose(folder)
  store.journal.appendAll(rolloutEntries(1))
  await expect(store.journal.durable()).rejects.toMatchObject({ code: 'run_gone' })
  expect(store.failure.reason).toMatchObject({ rawMessage: expect.stringMatching(loss.message) })
  await expect(store.finish('complete')).rejects.toMatchObject({ code: 'run_gone' })
  await store.close()
  expect(existsSync(folder) ? readdirSync(folder).toSorted() : undefined).toEqual(loss.left)
  for (const name of loss.foreign ?? []) expect(readFileSync(join(folder, name), 'utf8')).toBe('foreign')
})

test('a moved run continues once it is moved back', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  await using store = await RunStore.open({ folder, create: newRun() })
  store.journal.appendAll(rolloutEntries(0))
  await store.journal.durable()
  renameSync(folder, `${folder}-moved`)
  await store.close()
  renameSync(`${folder}-moved`, folder)
  await using again = await RunStore.open({ folder, create: newRun() })
  expect(Array.from(again.reader.ended(), ({ rollout }) => rollout)).toEqual(['0-0'])
  expect(again.reader.integrity()).toEqual([])
})

test.concurrent('a deleted run is noticed without a write', async () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  await using store = await RunStore.open({ folder, create: newRun() })
  const failed = once(store.failure, 'abort')
  rmSync(folder, { recursive: true })
  await failed
  expect(store.failure.reason).toMatchObject({ code: 'run_gone' })
})

test.runIf(existsSync('/proc/self/fd'))('a folder of which the file system knows nothing any more is gone', () => {
  using root = temporaryFolder()
  const folder = join(root.path, 'run')
  mkdirSync(folder)
  writeFileSync(join(folder, runFiles.database), '')
  const presence = new RunPresence(folder)
  expect(presence.absence()).toBeUndefined()
  const descriptor = descriptorOf(folder)
  rmSync(folder, { recursive: true })
  // From now on it cannot be asked, as on NFS (ESTALE).
  closeSync(descriptor)
  expect(presence.absence()).toMatchObject({
    code: 'run_gone',
    rawMessage: expect.stringMatching(/run was deleted or moved during the run; if you have the folder, put/),
  })
})

function descriptorOf(path: string): number {
  for (const name of readdirSync('/proc/self/fd')) {
    try {
      if (readlinkSync(`/proc/self/fd/${name}`) === path) return Number(name)
    } catch {
      // It was closed meanwhile.
    }
  }
  throw new Error(`${path} is not open`)
}
