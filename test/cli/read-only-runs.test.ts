import { chmod, cp, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunStore } from '../../src/store/index.ts'
import { newRun, rolloutEntries } from '../store/_fixtures.ts'
import { millrace, objects, startMillrace } from './_millrace.ts'

/** Nothing is forbidden to root, so that somebody else must look. */
const nobody = 65_534
const reader = process.getuid?.() === 0 ? { uid: nobody } : {}

const words = ['eval', 'arithmetic', '-m', 'sim', '--sim.ttftMs=20', '-n', '40', '-c', '4', '--json', '--run', 'it']

test.each(['has ended', 'was killed'])('a run that %s is read where nothing can be written', async (how) => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const run = join(cwd, 'runs', 'it')
  await using running = startMillrace({ cwd }, ...words, ...(how === 'has ended' ? ['--limit', '1'] : []))
  if (how === 'was killed') {
    await running.shows('stdout', '"outcome"', 20)
    running.process.kill('SIGKILL')
  }
  const reported = objects((await running.ended).stdout).filter(({ outcome }) => outcome !== undefined)
  expect(reported.length).toBeGreaterThanOrEqual(20)
  // As in a copy that somebody made of it: the index of the log is made anew by whoever opens it.
  await rm(join(run, 'journal.sqlite-shm'), { force: true })
  const files = await readdir(run)
  expect(files.includes('journal.sqlite-wal')).toBe(how === 'was killed')
  await chmod(cwd, 0o755)
  await using _writable = { [Symbol.asyncDispose]: () => chmod(run, 0o755) }
  await chmod(run, 0o555)

  const exported = await millrace({ cwd, ...reader }, 'export', 'it')
  expect(exported.stderr).toBe('')
  const ids = objects(exported.stdout).map(({ id }) => id)
  expect(ids).toEqual(expect.arrayContaining(reported.map(({ id }) => id)))
  const shown = await millrace({ cwd, ...reader }, 'show', 'it', '--json')
  expect(shown).toMatchObject({ code: 0, stderr: '' })
  const listed = await millrace({ cwd, ...reader }, 'list')
  expect(listed.stdout).toMatch(how === 'has ended' ? /^it +complete /m : /^it +unfinished /m)
  if (how === 'was killed') {
    const continued = await millrace({ cwd, ...reader }, ...words)
    expect(continued).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^error: cannot write to .*\[folder_unwritable\]$/m),
    })
  }
  expect(await readdir(run)).toEqual(files)
})

test('what a killed gateway had only written down is read, too, where nothing can be written', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const run = join(cwd, 'runs', 'it')
  // Longer than what stays in the database.
  const long = 'x'.repeat(200_000)
  {
    await using store = await RunStore.open({ folder: join(cwd, 'alive'), create: newRun(), isSpooled: true })
    store.journal.appendAll(rolloutEntries(1, { messages: [long, 'in the database'] }))
    await store.journal.durable()
    using blocker = new DatabaseSync(join(store.folder, 'journal.sqlite'))
    blocker.exec('BEGIN IMMEDIATE')
    store.journal.appendAll(rolloutEntries(2, { messages: [`${long}y`, 'in the spool'] }))
    await store.journal.written()
    await cp(store.folder, run, { recursive: true })
    blocker.exec('ROLLBACK')
  }
  const files = await readdir(run)
  await chmod(cwd, 0o755)
  await using _writable = { [Symbol.asyncDispose]: () => chmod(run, 0o755) }
  await chmod(run, 0o555)

  const exported = await millrace({ cwd, ...reader }, 'export', 'it')
  expect(exported).toMatchObject({ code: 0, stderr: '' })
  const said = objects(exported.stdout).map(({ messages }) =>
    (messages as { content: string }[]).map(({ content }) => content),
  )
  expect(said).toEqual([
    [long, 'in the database'],
    [`${long}y`, 'in the spool'],
  ])
  expect(await readdir(run)).toEqual(files)
})
