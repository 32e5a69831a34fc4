import { spawnSync } from 'node:child_process'
import { temporaryRuns } from 'millrace/testing'
import { expect, it } from 'vitest'

/** See test/store/full-disk.test.ts for what it needs of the machine. */
it('a full disk fails every request; with more space the next launch finishes the accepted ones', async () => {
  await using place = await temporaryRuns()
  const script = new URL('../support/serve/full-disk-run.ts', import.meta.url).pathname
  const inNamespace = 'mount -t tmpfs -o size=6m tmpfs "$1" && exec "$2" --no-warnings "$3" "$1"'
  const child = spawnSync('unshare', ['-m', 'sh', '-c', inNamespace, 'sh', place.root, process.execPath, script], {
    encoding: 'utf8',
    timeout: 200_000,
  })
  expect(child.status, `unshare and mount must be permitted: ${child.error?.message ?? child.stderr}`).toBe(0)
  const { reported, ...found } = JSON.parse(child.stdout) as Record<string, unknown>
  expect(reported).toBeGreaterThan(50)
  expect(found).toMatchObject({
    failure: 'disk_full',
    ready: { status: 'not ready', why: 'the store accepts no more records' },
    refusal: { status: 503, body: { error: { code: 'disk_full' } } },
    secondFailure: null,
    ended: 3_000,
    lost: 0,
    problems: [],
  })
})
