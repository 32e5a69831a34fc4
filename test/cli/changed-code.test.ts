import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { RunReader } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { millrace, objects, startMillrace } from '../support/cli/millrace-process.ts'

const environment = `
  import { defineEnvironment, z } from 'millrace'
  import { rewardOf } from './reward.ts'
  export default defineEnvironment({
    name: 'sums',
    task: z.object({ sum: z.string() }),
    tasks: () => ['1 + 1', '2 + 2', '3 + 3', '4 + 4'].map((sum) => ({ sum })),
    prompt: ({ task }) => \`What is \${task.sum}?\`,
    reward: () => rewardOf(),
  })`

test('a launch warns if the code has changed since the last launch, also with --json', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  await writeFile(join(cwd, 'environment.ts'), environment)
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 1')
  const sit = async (limit: number): Promise<string> => {
    const words = ['eval', './environment.ts', '-m', 'sim', '--run', 'mixed', '--json', '--limit', String(limit)]
    const { code, stdout, stderr } = await millrace({ cwd }, ...words)
    expect(code, stderr).toBe(0)
    const start = objects(stdout).find(({ type }) => type === 'start')
    return JSON.stringify(start?.['notices'])
  }
  expect(await sit(1)).toBe('[]')
  expect(await sit(2)).not.toContain('warning')
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 2')
  expect(await sit(3)).toContain(
    "warning: reward.ts changed since run mixed began: its ended rollouts ran with the former code; --new (run.resume: 'never') starts a run with only the current code",
  )
  const kept = /notice  reward\.ts changed between launches of this run: its results mix versions of the code; --new /
  expect((await millrace({ cwd }, 'show', 'mixed')).stdout).toMatch(kept)
  // A launch of the former code does not make the results of one code again.
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 1')
  expect(await sit(4)).not.toContain('warning')
  expect((await millrace({ cwd }, 'show', 'mixed')).stdout).toMatch(kept)
  const again = await millrace({ cwd }, 'show', 'mixed', '--json')
  expect(JSON.parse(again.stdout)).toMatchObject({ changedCode: ['reward.ts'] })
})

test('a complete run warns about changed code only if new tasks are run', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const tasks = join(cwd, 'tasks.jsonl')
  const grown = environment
    .replace(/tasks: .*/, `tasks: () => jsonl(${JSON.stringify(tasks)}),`)
    .replace(', z }', ', jsonl, z }')
  const line = (row: number): string => `${JSON.stringify({ sum: `${row} + ${row}` })}\n`
  await writeFile(join(cwd, 'environment.ts'), grown)
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 1')
  await writeFile(tasks, line(1) + line(2))
  const sit = async (): Promise<Record<string, unknown>[]> => {
    const words = ['eval', './environment.ts', '-m', 'sim', '--run', 'grown', '--json']
    const { code, stdout, stderr } = await millrace({ cwd }, ...words)
    expect(code, stderr).toBe(0)
    return objects(stdout)
  }
  await sit()
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 2')
  const same = await sit()
  expect(JSON.stringify(same.at(0))).not.toContain('reward.ts changed')
  expect(same.at(-1)).toMatchObject({ changedCode: [] })
  await writeFile(tasks, line(1) + line(2) + line(3))
  const more = await sit()
  expect(JSON.stringify(more.at(0))).toContain('warning: reward.ts changed since run grown began')
  expect(more.at(-1)).toMatchObject({ changedCode: ['reward.ts'] })
})

test('a run whose attempts are all repeated with corrected code prints no warning', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 1')
  const words = ['eval', './environment.ts', '-m', 'sim', '--run', 'again']
  await writeFile(join(cwd, 'environment.ts'), environment.replace('task.sum}', 'task.sum.not.there}'))
  expect((await millrace({ cwd }, ...words)).code).toBe(3)
  await writeFile(join(cwd, 'environment.ts'), environment)
  const { code, stdout, stderr } = await millrace({ cwd }, ...words, '--retry-failed')
  expect(code, stderr).toBe(0)
  expect(stdout + stderr).not.toContain('changed')
})

test('a rollout that is only rescored counts as a result of the code that ran it', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  await writeFile(join(cwd, 'environment.ts'), environment)
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => Number.NaN')
  const words = ['eval', './environment.ts', '-m', 'sim', '--run', 'scored']
  expect((await millrace({ cwd }, ...words)).code).toBe(3)
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 2')
  const { stderr } = await millrace({ cwd }, ...words, '--retry-failed')
  expect(stderr).toContain('warning: reward.ts changed since run scored began')
})

test('a group that only lacks its score is scored by the current code, and the change is recorded', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const hung = "(what: string) => process.env['HUNG'] === what && new Promise(() => {})"
  await writeFile(
    join(cwd, 'environment.ts'),
    environment.replace(
      /reward: .*/,
      `reward: {
         own: async ({ rollout }) => { await (${hung})(String(rollout.sample)); return 1 },
         all: { group: async ({ members }) => { await (${hung})('group'); return members.map(rewardOf) } },
       },`,
    ),
  )
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 1')
  const words = ['eval', './environment.ts', '-m', 'sim', '-n', '2', '--limit', '1', '--run', 'grouped', '--json']
  const held = (): string[] => {
    using reader = RunReader.open(join(cwd, 'runs', 'grouped'))
    return [...reader.unfinished()].flatMap(({ rollout, state }) => (state === 'held' ? [rollout] : []))
  }
  // What was cut off while another member was held ends before that one is taken up: then all of them are held.
  for (const [hungAt, ended] of [
    ['0', ['0-1']],
    ['group', ['0-0', '0-1']],
  ] as const) {
    await using running = startMillrace({ cwd, env: { HUNG: hungAt } }, ...words, '-c', hungAt === 'group' ? '1' : '2')
    await running.shows('stdout', '"start"')
    await expect.poll(held, { timeout: 20_000 }).toEqual(ended)
  }
  await writeFile(join(cwd, 'reward.ts'), 'export const rewardOf = () => 2')
  const { code, stdout, stderr } = await millrace({ cwd }, ...words)
  expect(code, stderr).toBe(0)
  expect(objects(stdout).at(-1)).toMatchObject({ rollouts: 2, scored: 2, changedCode: ['reward.ts'] })
})
