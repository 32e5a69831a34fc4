import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { createInterface } from 'node:readline'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { seededRandom } from '../../src/kit/index.ts'
import { RunReader } from '../../src/store/index.ts'

const kills = 20

/** A run of the command: its name, how many rollouts it has, and how many of them at once. */
interface Run {
  readonly root: string
  readonly name: string
  readonly tasks: number
  readonly attempts: number
  readonly atOnce: number
}

test('a run of 2,000 rollouts that is killed 20 times loses no result and repeats none', async () => {
  await using runs = await temporaryRuns()
  const run: Run = { root: runs.root, name: 'killed', tasks: 1_000, attempts: 2, atOnce: 50 }
  const rollouts = run.tasks * run.attempts
  const random = seededRandom(20)
  const reported = new Set<string>()
  let launches = 0
  for (let kill = 0; kill < kills; kill += 1) {
    // Killed after a random number of reported rollouts, so that every launch gets somewhere and none gets to the end.
    const after = 1 + Math.floor(random() * ((rollouts / kills) * 1.5))
    const isKilled = await sit(run, reported, after)
    launches += 1
    if (!isKilled) break
    expectAll(run, reported)
  }
  expect(launches).toBe(kills)
  await sit(run, reported, Infinity)
  await expectWhole(run)
})

function expectAll({ root, name }: Run, reported: ReadonlySet<string>): void {
  using reader = RunReader.open(join(root, name))
  for (const id of reported) expect(reader.hasEnded(id), `${id} was reported and is gone`).toBe(true)
}

async function expectWhole({ root, name, tasks, attempts }: Run): Promise<void> {
  const rollouts = tasks * attempts
  using reader = RunReader.open(join(root, name))
  expect(reader.integrity()).toEqual([])
  const ended = [...reader.ended()]
  expect(ended).toHaveLength(rollouts)
  expect(new Set(ended.map(({ rollout }) => rollout)).size).toBe(rollouts)
  expect([...reader.events('duplicate-result')]).toEqual([])
  expect(new Set(ended.map(({ outcome }) => outcome))).toEqual(new Set(['completed']))
  // Every task's row is there, once, whatever launches began with it.
  expect(Array.from(reader.tasks(), ({ row }) => row)).toEqual(
    Array.from({ length: tasks }, (_, index) => ({ left: index, right: index + 1 })),
  )
  expect(storedRows(join(root, name))).toBe(tasks)
  const lines = (await readFile(join(root, name, 'rollouts.jsonl'), 'utf8')).trimEnd().split('\n')
  expect(new Set(lines.map((line) => (JSON.parse(line) as { id: string }).id)).size).toBe(rollouts)
  expect(lines).toHaveLength(rollouts)
  // Every turn of every result is there: what was sampled, and before it what was asked.
  for (const { rollout, attempt, record } of ended) {
    const nodes = reader.nodes(rollout, attempt)
    expect(nodes.filter(({ sampled }) => sampled)).toHaveLength(record.turns)
    expect(nodes.map(({ seq }) => seq)).toEqual(nodes.map((_, index) => index))
  }
}

function storedRows(folder: string): unknown {
  using database = new DatabaseSync(join(folder, 'journal.sqlite'), { readOnly: true })
  return database.prepare('SELECT count(*) AS n FROM task_row').get()?.['n']
}

/** One launch of the run as a process of its own; true if it was killed before it ended. */
async function sit(run: Run, reported: Set<string>, killAfter: number): Promise<boolean> {
  const { root, name, tasks, attempts, atOnce } = run
  const child = spawn(
    process.execPath,
    [
      'bin/millrace.js',
      ...`eval test/fixtures/counting.ts --env.count=${tasks} -n ${attempts} -c ${atOnce}`.split(' '),
      ...`-m sim --sim.ttftMs=3 --seed 7 --runs ${root} --run ${name} --json --no-preflight`.split(' '),
    ],
    // Without this process's own variables: where it keeps compiled code is for other flags of V8, and of no use to the command.
    { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env['PATH'] } },
  )
  const exit = once(child, 'exit')
  let errors = ''
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  let seen = 0
  for await (const line of createInterface({ input: child.stdout })) {
    const event = JSON.parse(line) as { type: string; id?: string; rollout?: { id: string } }
    if (event.type !== 'rollout') continue
    const id = event.id ?? event.rollout?.id ?? ''
    expect(reported.has(id), `${id} was reported twice`).toBe(false)
    reported.add(id)
    seen += 1
    if (seen === killAfter) child.kill('SIGKILL')
  }
  const [code, signal] = (await exit) as [number | null, string | null]
  if (signal === 'SIGKILL') return true
  expect(code, errors).toBe(0)
  return false
}
