import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'

/** Enough for the whole child; a child that something keeps alive is ended by it, and the test fails. */
const maxChildMs = 120_000

test('a gateway, run or server that fails to open at any step leaves no backend, thread or process behind', async () => {
  await using runs = await temporaryRuns()
  const script = join(import.meta.dirname, '../support/eval/refused-openings.ts')
  const { stdout } = await promisify(execFile)(process.execPath, [script, runs.root], { timeout: maxChildMs })
  const told = JSON.parse(stdout) as Record<string, [code: string, threads: number]>
  expect(told).toEqual({
    'gateway: the file of an authority': ['config_invalid', 0],
    'gateway: a simulator': ['config_invalid', 0],
    'gateway: an alias': ['config_invalid', 0],
    'gateway: a key of two tenants': ['config_invalid', 0],
    'gateway: the port': ['config_invalid', 0],
    'gateway alone: a model': ['config_invalid', 0],
    'gateway alone: no key': ['config_invalid', 0],
    'gateway alone: its sessions': ['ERR_INVALID_STATE', 0],
    'eval: a model': ['config_invalid', 0],
    'eval: a model beside a tool server': ['config_invalid', 0],
    'eval: a model beside an offloaded reward': ['config_invalid', 0],
    'eval: the preflight': ['model_auth', 0],
    'eval: the tasks': ['tasks_failed', 0],
    'eval: a model of a worker': ['config_invalid', 0],
    'serve: a model': ['config_invalid', 0],
    'serve: the preflight': ['model_auth', 0],
    'serve: the port': ['config_invalid', 0],
  })
  // The run without a server, and the one of the server whose port could not be opened.
  expect(await readdir(runs.root)).toHaveLength(2)
})
