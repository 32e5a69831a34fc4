import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { millrace, startMillrace } from '../support/cli/millrace-process.ts'

const environment = (parts: { before?: string; tasks?: string }): string => `
  import { defineEnvironment, z } from 'millrace'
  ${parts.before ?? ''}
  export default defineEnvironment({
    name: 'hanging',
    task: z.object({}),
    tasks: ${parts.tasks ?? '() => [{}]'},
    prompt: () => 'go',
    reward: () => 1,
  })`

const aWhile = 'new Promise((resolve) => setTimeout(resolve, 3_600_000))'

describe.concurrent('an environment that never provides its tasks', () => {
  it.each([
    ['loading the environment', { before: `await ${aWhile}` }],
    ['asking the environment for its tasks', { tasks: `() => ${aWhile}` }],
  ] as const)('is abandoned at the first signal, and the message says that it was still %s', async (what, parts) => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeFile(join(cwd, 'environment.ts'), environment(parts))
    await using running = startMillrace({ cwd }, 'eval', './environment.ts', '-m', 'sim')
    await running.shows('stderr', `${what}…`)
    running.process.kill('SIGINT')
    const ended = await running.ended
    expect(ended).toMatchObject({ code: 130, stdout: '' })
    expect(ended.stderr).toContain(`Stopping; it was still ${what}.`)
    expect(ended.stderr).toContain('Stopped before the first rollout: nothing was run.')
    expect(await readdir(join(cwd, 'runs')).catch(() => [])).toEqual([])
  })

  it.each(['eval', 'serve'])('makes millrace %s fail if its top-level await can never settle', async (command) => {
    await using place = await temporaryRuns()
    const cwd = place.root
    await writeFile(join(cwd, 'environment.ts'), environment({ before: 'await new Promise(() => {})' }))
    const ended = await millrace({ cwd }, command, './environment.ts', '-m', 'sim')
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toMatch(/^error: .*environment\.ts could not be loaded: an await outside of any function/)
    expect(ended.stderr.trimEnd().split('\n')).toHaveLength(1)
  })
})
