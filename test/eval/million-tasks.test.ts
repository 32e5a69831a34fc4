import { createWriteStream } from 'node:fs'
import { join } from 'node:path'
import { once } from 'node:events'
import { defineEnvironment, evaluate, jsonl, RunReader, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

const rows = 1_000_000

test('an environment with a million JSONL tasks starts at once and reads only the tasks that it runs', async () => {
  await using runs = await temporaryRuns()
  const file = join(runs.root, 'tasks.jsonl')
  await writeRows(file)
  const environment = defineEnvironment({
    name: 'million',
    task: z.object({ left: z.number(), right: z.number() }),
    tasks: () => jsonl(file),
    prompt: ({ task }) => `What is ${task.left} + ${task.right}?`,
    reward: () => 1,
  })
  const evaluation = evaluate({
    environment,
    model: 'sim',
    concurrency: 50,
    run: { root: runs.root, name: 'million' },
  })
  let ended = 0
  for await (const _record of evaluation) {
    ended += 1
    if (ended === 200) break
  }
  expect(await evaluation.summary()).toMatchObject({ end: 'stopped' })
  using reader = RunReader.open(join(runs.root, 'million'))
  expect(reader.counts().tasks).toBeGreaterThanOrEqual(200)
  expect(reader.counts().tasks).toBeLessThan(2_000)
})

async function writeRows(file: string): Promise<void> {
  const stream = createWriteStream(file)
  for (let row = 0; row < rows; row += 10_000) {
    let chunk = ''
    for (let index = row; index < row + 10_000; index += 1) chunk += `{"left":${index},"right":1}\n`
    if (!stream.write(chunk)) await once(stream, 'drain')
  }
  stream.end()
  await once(stream, 'finish')
}
