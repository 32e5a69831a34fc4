import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { provenance } from './provenance.ts'
import { temporaryFolder } from '../../../test/support/store/fixtures.ts'

const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as {
  version: string
}

test('outside a repository there is no commit', async () => {
  using folder = temporaryFolder()
  expect(await provenance(folder.path)).toEqual({
    git: null,
    millrace: version,
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
  })
})

test('provenance names the commit, and whether the work tree differs from it', async () => {
  using folder = temporaryFolder()
  const git = (...args: readonly string[]): string =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.org', ...args], {
      cwd: folder.path,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
  git('init')
  expect((await provenance(folder.path)).git).toEqual({ commit: null, dirty: false })
  writeFileSync(join(folder.path, 'a'), '1')
  git('add', 'a')
  git('commit', '-m', 'first')
  const commit = git('rev-parse', 'HEAD')
  expect((await provenance(folder.path)).git).toEqual({ commit, dirty: false })
  writeFileSync(join(folder.path, 'a'), '2')
  expect((await provenance(folder.path)).git).toEqual({ commit, dirty: true })
})
