import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { temporaryFolder } from '../support/store/fixtures.ts'

/**
 * A disk of 6 MB that nobody else sees. It needs the right to mount (root, or a container with it); where that is not
 * given this test fails and says so, because a store that was never tried on a full disk is not known to survive one.
 */
test('a full disk stops a run with a clear error and no loss, and the run continues with more space', () => {
  using folder = temporaryFolder()
  const script = new URL('../support/store/full-disk-run.ts', import.meta.url).pathname
  const inNamespace = 'mount -t tmpfs -o size=6m tmpfs "$1" && exec "$2" --no-warnings "$3" "$1"'
  const child = spawnSync('unshare', ['-m', 'sh', '-c', inNamespace, 'sh', folder.path, process.execPath, script], {
    encoding: 'utf8',
    timeout: 200_000,
  })
  expect(child.status, `unshare and mount must be permitted: ${child.error?.message ?? child.stderr}`).toBe(0)
  const result = JSON.parse(child.stdout) as {
    full: { message: string; acknowledged: number }
    whileFull: string
  }
  expect(result).toMatchObject({
    full: { code: 'disk_full', later: 'disk_full', lost: 0 },
    leftOpen: [],
    resumed: { lostBefore: 0, lost: 0, problems: [], added: 1, state: 'complete' },
  })
  expect(result.whileFull).toBe('disk_full')
  expect(result.full.acknowledged).toBeGreaterThan(50)
  expect(result.full.message).toMatch(/free some space, then run the same again/)
})

test('lines refused by a full disk are written before the run is closed, if there is space by then', () => {
  using mount = temporaryFolder()
  using folder = temporaryFolder()
  const script = new URL('../support/store/full-disk-lines.ts', import.meta.url).pathname
  const inNamespace = 'mount -t tmpfs -o size=256k tmpfs "$1" && exec "$2" --no-warnings "$3" "$1" "$4"'
  const words = ['-m', 'sh', '-c', inNamespace, 'sh', mount.path, process.execPath, script, folder.path]
  const child = spawnSync('unshare', words, { encoding: 'utf8', timeout: 200_000 })
  expect(child.status, `unshare and mount must be permitted: ${child.error?.message ?? child.stderr}`).toBe(0)
  expect(JSON.parse(child.stdout)).toEqual({
    codes: ['disk_full'],
    ids: ['0-0', '1-0'],
    ended: ['0-0', '1-0'],
    problems: [],
  })
})
