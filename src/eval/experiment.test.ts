import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { temporaryFolder } from '../../test/support/store/fixtures.ts'
import { defineEnvironment } from '../env/index.ts'
import { newRunFile } from '../store/run/run-file.ts'
import { describeDifference, experimentChange } from './resume/experiment-change.ts'
import type { EvaluateOptions } from './options.ts'
import { moduleName } from './experiment.ts'
import { resolveRun } from './resolve-run.ts'

const environment = defineEnvironment({
  name: 'rows',
  options: z.looseObject({}),
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'go',
  reward: () => 1,
})

const first: EvaluateOptions = {
  environment,
  options: { split: 'test', size: { rows: 3, columns: 4 } },
  model: 'policy',
  judge: 'grader',
  models: {
    policy: { backends: [{ url: 'http://a.invalid/v1' }, { url: 'http://b.invalid/v1' }], api: 'chat' },
    grader: { backends: [{ url: 'http://c.invalid/v1' }] },
  },
  sampling: { temperature: 1, extra: { min_p: 0.1, top_k: 5 } },
  limits: { maxTurns: 3, maxTokens: 100 },
}

/** The same values, every object and every list of servers the other way round. */
const second: EvaluateOptions = {
  limits: { maxTokens: 100, maxTurns: 3 },
  sampling: { extra: { top_k: 5, min_p: 0.1 }, temperature: 1 },
  models: {
    grader: { backends: [{ url: 'http://c.invalid/v1' }] },
    policy: { api: 'chat', backends: [{ url: 'http://b.invalid/v1' }, { url: 'http://a.invalid/v1' }] },
  },
  judge: 'grader',
  model: 'policy',
  options: { size: { columns: 4, rows: 3 }, split: 'test' },
  environment,
}

test('the order of options, models and backends does not change the experiment digest', async () => {
  const [one, other] = [await resolveRun(first, {}), await resolveRun(second, {})]
  expect(other.digest).toBe(one.digest)
  const changed = await resolveRun({ ...second, options: { size: { columns: 5, rows: 3 }, split: 'test' } }, {})
  expect(changed.digest).not.toBe(one.digest)
})

test('options that only say where something is do not change the experiment digest', async () => {
  const options = { environment: { ...environment, addresses: ['server'] }, model: 'sim' }
  const at = async (server: string, split: string) =>
    (await resolveRun({ ...options, options: { server, split } }, {})).digest
  expect(await at('http://a.invalid', 'test')).toBe(await at('http://b.invalid', 'test'))
  expect(await at('http://a.invalid', 'test')).not.toBe(await at('http://a.invalid', 'train'))
})

test('the difference is named, also one of many, and one of secrets only', async () => {
  const resolved = await resolveRun(first, {})
  const config = JSON.parse(JSON.stringify(resolved.config)) as Record<string, never>
  const file = newRunFile({ name: 'it', configDigest: 'other', config, provenance: {} })
  expect(experimentChange(file, resolved)).toEqual({
    parts: [],
    text: 'a value that run.json does not have, such as a secret',
  })
  const moved = await resolveRun(
    { ...second, models: { ...second.models, grader: { backends: [{ url: 'http://d.invalid/v1' }] } } },
    {},
  )
  expect(experimentChange(file, moved)).toEqual({
    parts: ['models'],
    text: 'models.grader.urls[0] "http://c.invalid/v1", now "http://d.invalid/v1"',
  })
})

test('two long values are shown from their first difference on', () => {
  const common = 'x'.repeat(500)
  const text = describeDifference('options.system', `${common} yes`, `${common} no`)
  expect(text).toBe(`options.system …${'x'.repeat(19)} yes", now …${'x'.repeat(19)} no"`)
})

test('a module is identified by its place in its project, not by the working directory', () => {
  using root = temporaryFolder()
  const nameIn = (project: string): string => {
    const here = process.cwd()
    process.chdir(join(root.path, project))
    try {
      return moduleName(pathToFileURL(join(root.path, project, 'envs', 'sums.ts')).href)
    } finally {
      process.chdir(here)
    }
  }
  mkdirSync(join(root.path, 'project', 'envs'), { recursive: true })
  writeFileSync(join(root.path, 'project', 'envs', 'sums.ts'), '')
  expect(nameIn('project')).toBe(join(root.path, 'project/envs/sums.ts'))
  writeFileSync(join(root.path, 'project', 'package.json'), '{"name": "@me/maths"}')
  expect(nameIn('project')).toBe('@me/maths/envs/sums.ts')
  expect(nameIn('project/envs/..')).toBe('@me/maths/envs/sums.ts')
  renameSync(join(root.path, 'project'), join(root.path, 'moved'))
  expect(nameIn('moved')).toBe('@me/maths/envs/sums.ts')
  rmSync(join(root.path, 'moved', 'package.json'))
  mkdirSync(join(root.path, 'moved', '.git'))
  expect(nameIn('moved')).toBe('envs/sums.ts')
})
