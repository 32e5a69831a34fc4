import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { fixture, millrace } from './_millrace.ts'

const common = ['eval', fixture('worker-mishaps.ts'), '-m', 'sim', '-c', '1', '--run', 'it']

const words = (folder: string): string[] => {
  return [...common, '--env.count=4', '--env.every=2', `--env.log=${join(folder, 'log')}`]
}

test('an environment that ends the process is told on, and the run goes on from there', async () => {
  await using runs = await temporaryRuns()
  const ended = await millrace({ cwd: runs.root }, ...words(runs.root), '--env.mishap=exit')
  expect(ended.code).toBe(3)
  expect(ended.stderr).toMatch(/^error: code of the environment.* ended the process \(process\.exit, code 3\)/m)
  expect(ended.stderr).toContain('--workers')
})

test('a run that ends by itself has no such notice', async () => {
  await using runs = await temporaryRuns()
  const ended = await millrace({ cwd: runs.root }, ...words(runs.root))
  expect(ended.code, ended.stderr).toBe(0)
  expect(ended.stderr).not.toContain('ended the process')
})
