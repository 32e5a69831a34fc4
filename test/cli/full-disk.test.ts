import { spawnSync } from 'node:child_process'
import { temporaryRuns } from 'millrace/testing'
import { expect, it } from 'vitest'

/** See test/store/full-disk.test.ts for what it needs of the machine. */
it.each([
  { atOnce: 1, count: 1000, size: '4m' },
  { atOnce: 100, count: 3000, size: '6m' },
])(
  'a full disk fails the command; with more space the same command completes every outcome ($atOnce at once)',
  async ({ atOnce, count, size }) => {
    await using place = await temporaryRuns()
    const script = new URL('../support/cli/full-disk-run.ts', import.meta.url).pathname
    const inNamespace = 'mount -t tmpfs -o size="$4" tmpfs "$1" && exec "$2" --no-warnings "$3" "$1" "$5" "$6"'
    const child = spawnSync(
      'unshare',
      ['-m', 'sh', '-c', inNamespace, 'sh', place.root, process.execPath, script, size, String(atOnce), String(count)],
      {
        encoding: 'utf8',
        timeout: 200_000,
        maxBuffer: 64 * 1024 * 1024,
      },
    )
    expect(child.status, `unshare and mount must be permitted: ${child.error?.message ?? child.stderr}`).toBe(0)
    const { first, second, ...found } = JSON.parse(child.stdout) as {
      first: { code: number; stderr: string; ids: string[]; summary?: unknown }
      second: { code: number; stderr: string; summary: unknown }
    }
    expect(first.code, first.stderr).toBe(1)
    expect(first.stderr).toMatch(
      // Where a start takes longer than two seconds it says what it is at.
      /^(?:.*….*\n)*Ended rollouts are kept\. Continue with:\n {2}(npx )?millrace eval .* --run it\nerror: no space left for the run in .*: free some space, then run the same again \[disk_full\]\n$/,
    )
    expect(first.summary).toBeUndefined()
    expect(first.ids.length).toBeGreaterThan(50)
    expect(second.code, second.stderr).toBe(0)
    expect(second.summary).toMatchObject({ end: 'complete', rollouts: count, scored: count })
    expect(found).toEqual({ ended: count, distinct: count, lines: count, lost: 0, repeated: 0, problems: [] })
  },
)
