/**
 * A run on a disk that is too small for it, then the same command again with more room. Prints what the two launches did as one
 * line of JSON. Expects to be in a mount namespace of its own, with a tmpfs mounted on the folder it is given.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { RunReader } from '../../../src/store/index.ts'

const [, , mount = '', concurrency = '', count = ''] = process.argv
const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url))
const folder = join(mount, 'runs', 'it')

const first = sit()
execFileSync('mount', ['-o', 'remount,size=64m', mount])
const second = sit()
using reader = RunReader.open(folder)
const ended = Array.from(reader.ended(), ({ rollout }) => rollout)
const lines = readFileSync(join(folder, 'rollouts.jsonl'), 'utf8').trimEnd().split('\n')
process.stdout.write(
  JSON.stringify({
    first,
    second,
    ended: ended.length,
    distinct: new Set(ended).size,
    // Reported by the first launch, and so promised.
    lost: first.ids.filter((id) => !reader.hasEnded(id)).length,
    repeated: second.ids.filter((id) => first.ids.includes(id)).length,
    lines: new Set(lines.map((line) => (JSON.parse(line) as { id: string }).id)).size,
    problems: reader.integrity(),
  }),
)

function sit(): { code: number | null; stderr: string; ids: string[]; summary: unknown } {
  const words = ['-m', 'sim', `--env.count=${count}`, '-c', concurrency, '--seed', '3', '--run', 'it', '--json']
  const child = spawnSync(
    process.execPath,
    [path('../../../bin/millrace.js'), 'eval', path('../../fixtures/counting.ts'), ...words],
    { cwd: mount, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024, timeout: 90_000 },
  )
  const objects = child.stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as { type: string; id?: string })
  const ids = objects.flatMap(({ type, id }) => (type === 'rollout' && id !== undefined ? [id] : []))
  return { code: child.status, stderr: child.stderr, ids, summary: objects.find(({ type }) => type === 'summary') }
}
