import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { findRuns } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { fixture, millrace } from '../support/cli/millrace-process.ts'

const common = ['eval', fixture('workers/mishaps.ts'), '-m', 'sim', '-c', '1', '--run', 'it']

const words = (folder: string): string[] => {
  return [...common, '--env.count=4', '--env.every=2', `--env.log=${join(folder, 'log')}`]
}

test.each([3, 0])('an environment that ends the process with %i makes the command fail', async (code) => {
  await using runs = await temporaryRuns()
  const mishap = code === 0 ? 'quiet-exit' : 'exit'
  const ended = await millrace({ cwd: runs.root }, ...words(runs.root), `--env.mishap=${mishap}`)
  expect(ended.code).toBe(1)
  expect(ended.stderr).toMatch(/^error: code of the environment.* ended the process \(process\.exit, code [03]\)/m)
  expect(ended.stderr).toContain(`(process.exit, code ${code})`)
  expect(ended.stderr).toContain('--workers')
  const found = await findRuns(join(runs.root, 'runs'))
  expect(found.runs.map(({ name, run }) => [name, run.state])).toEqual([['it', 'unfinished']])
})

test('a reward that ends the process during rescoring makes the command fail with an error that names it', async () => {
  await using runs = await temporaryRuns()
  const cwd = runs.root
  await millrace({ cwd }, ...words(cwd))
  const reward = `import mishaps from ${JSON.stringify(fixture('workers/mishaps.ts'))}
    export default { ...mishaps, reward: () => process.exit(0) }`
  await writeFile(join(cwd, 'exits.ts'), reward)
  const ended = await millrace({ cwd }, 'rescore', 'it', './exits.ts')
  expect(ended.code).toBe(1)
  expect(ended.stderr).toContain('(process.exit, code 0). The run is unchanged.')
})

test('a run that ends normally prints no such error', async () => {
  await using runs = await temporaryRuns()
  const ended = await millrace({ cwd: runs.root }, ...words(runs.root))
  expect(ended.code, ended.stderr).toBe(0)
  expect(ended.stderr).not.toContain('ended the process')
})
