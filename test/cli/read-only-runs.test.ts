import { chmod, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { millrace, objects, startMillrace } from '../support/cli/millrace-process.ts'

/** Nothing is forbidden to root, so that somebody else must look. */
const nobody = 65_534
const reader = process.getuid?.() === 0 ? { uid: nobody } : {}

const words = ['eval', 'arithmetic', '-m', 'sim', '--sim.ttftMs=20', '-n', '40', '-c', '4', '--json', '--run', 'it']

test.each(['has ended', 'was killed'])('a run that %s can be read without write permission', async (how) => {
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

test('a killed run without its WAL index cannot be read without write permission; the error gives the way', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const run = join(cwd, 'runs', 'it')
  await using running = startMillrace({ cwd }, ...words)
  await running.shows('stdout', '"outcome"', 1)
  running.process.kill('SIGKILL')
  await running.ended
  // As in a copy that somebody made of it: the index is made anew by whoever opens it.
  await rm(join(run, 'journal.sqlite-shm'))
  await chmod(cwd, 0o755)
  await using _writable = { [Symbol.asyncDispose]: () => chmod(run, 0o755) }
  await chmod(run, 0o555)

  expect(await millrace({ cwd, ...reader }, 'export', 'it')).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringMatching(
      /its last records are in journal\.sqlite-wal, .*; copy the folder .*\[store_failed\]$/m,
    ),
  })
})
