import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { defineEnvironment, evaluate, exportRollouts, RunReader, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { millrace, objects } from '../support/cli/millrace-process.ts'

const environmentFile = `
import { defineEnvironment, jsonl, z } from 'millrace'

export default defineEnvironment({
  name: 'sums',
  task: z.object({ sum: z.string(), target: z.number(), hint: z.string().default('none') }),
  tasks: () => jsonl(new URL('sums.jsonl', import.meta.url)),
  prompt: ({ task }) => \`What is \${task.sum}? Reply with Answer: <number>.\`,
  reward: ({ task, answer }) => answer.includes(String(task.target)),
})
`

/** The second row again, with fields that the schema does not know, and one that is no task. */
const rows = [
  { sum: '1 + 1', target: 2 },
  { sum: '2 + 2', target: 4, source: 'book' },
  { sum: '2 + 2', target: 4, source: 'book' },
  { sum: 3 },
]

test('a run stores each row once; show, export and readers print the row and its target', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  await writeFile(join(cwd, 'sums.ts'), environmentFile)
  await writeFile(join(cwd, 'sums.jsonl'), rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
  const ran = await millrace({ cwd }, 'eval', './sums.ts', '-m', 'sim', '-n', '2', '--run', 'it', '--quiet')
  expect(ran.code).toBe(3)
  const folder = join(cwd, 'runs', 'it')
  using database = new DatabaseSync(join(folder, 'journal.sqlite'), { readOnly: true })
  expect(database.prepare('SELECT count(*) AS n FROM task_row').get()?.['n']).toBe(3)
  expect(await readFile(join(folder, 'rollouts.jsonl'), 'utf8')).not.toContain('book')

  using reader = RunReader.open(folder)
  expect(Array.from(reader.tasks(), ({ row }) => row)).toEqual(rows)

  const transcript = await millrace({ cwd }, 'show', 'it', '1-1')
  expect(transcript.stdout).toMatch(/^1-1 .*\ntask {6}sum: 2 \+ 2\n {10}target: 4\n {10}source: book\n\n▌ user\n/)
  const [shown] = objects((await millrace({ cwd }, 'show', 'it', '3-0', '--json')).stdout)
  expect(shown).toMatchObject({ outcome: 'env_error', taskRow: { sum: 3 } })

  const exported = objects((await millrace({ cwd }, 'export', 'it')).stdout)
  expect(exported).toHaveLength(8)
  for (const line of exported) expect(line['taskRow']).toEqual(rows[(line['task'] as { index: number }).index])
  const bare = objects((await millrace({ cwd }, 'export', 'it', '--no-task-rows')).stdout)
  expect(bare).toHaveLength(8)
  for (const line of bare) expect(line).not.toHaveProperty('taskRow')
})

test('a run stores rows of any size and type', async () => {
  await using runs = await temporaryRuns()
  const given: readonly unknown[] = ['a text', 7, null, [1, 2], { image: 'x'.repeat(3_000_000) }]
  const environment = defineEnvironment({
    name: 'anything',
    task: z.unknown(),
    tasks: () => given,
    prompt: () => 'Say something.',
    reward: () => 1,
  })
  const run = { root: runs.root, name: 'it' }
  expect(await evaluate({ environment, model: 'sim', run }).summary()).toMatchObject({ end: 'complete', rollouts: 5 })
  using reader = RunReader.open(join(runs.root, 'it'))
  expect(Array.from(reader.tasks(), ({ row }) => row)).toEqual(given)
  const lines = await Array.fromAsync(exportRollouts(reader, { format: 'jsonl' }))
  const exported = lines.map((line) => JSON.parse(line) as { task: { index: number }; taskRow: unknown })
  expect(exported.toSorted((one, other) => one.task.index - other.task.index).map(({ taskRow }) => taskRow)).toEqual(
    given,
  )
  expect(reader.integrity()).toEqual([])
})
