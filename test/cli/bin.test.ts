import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'

const bin = fileURLToPath(new URL('../../bin/millrace.js', import.meta.url))

function run(words: readonly string[], nodeFlags: readonly string[] = []) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...nodeFlags, bin, ...words], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'] },
    timeout: 120_000,
  })
  return { status, stdout, stderr }
}

/** A module loaded first, as `--import` takes it. */
const preloaded = (code: string): string => `--import=data:text/javascript,${encodeURIComponent(code)}`

describe('bin/millrace.js', () => {
  it('passes its arguments to the command line and exits with its code', () => {
    expect(run(['--version'])).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
      stderr: '',
    })
    expect(run(['evla'])).toMatchObject({ status: 2, stdout: '' })
  })

  it('exits although a timer is still active', () => {
    expect(run(['--version'], [preloaded('setInterval(() => {}, 1000)')])).toMatchObject({ status: 0, stderr: '' })
  })

  it('hides the warning about the experimental database, but no other warning', () => {
    const folder = fileURLToPath(new URL('.', import.meta.url))
    expect(run(['list', '--runs', folder])).toMatchObject({ status: 0, stderr: '' })
    const warn = preloaded('setImmediate(() => process.emitWarning("something else", "ExperimentalWarning"))')
    expect(run(['list', '--runs', folder], [warn]).stderr).toContain('something else')
  })

  it.each(['thread', 'process'])(
    'shares its compile cache with a worker %s, but not with the processes that the environment starts',
    async (isolation) => {
      await using runs = await temporaryRuns()
      const file = join(runs.root, 'environment.ts')
      const log = join(runs.root, 'log')
      writeFileSync(
        file,
        `import { appendFileSync } from 'node:fs'
      import { getCompileCacheDir } from 'node:module'
      import { defineEnvironment, offload, z } from 'millrace'
      const { NODE_COMPILE_CACHE: passedOn = 'nothing' } = process.env
      appendFileSync(${JSON.stringify(log)}, getCompileCacheDir() + ' ' + passedOn + '\\n')
      export default defineEnvironment({
        name: 'notes where compiled code is kept',
        isolation: ${JSON.stringify(isolation)},
        task: z.object({}),
        tasks: () => [{}],
        prompt: () => 'Hello',
        reward: offload(() => 1),
      })`,
      )
      expect(run(['eval', file, '-m', 'sim', '--workers', '1', '--runs', runs.root])).toMatchObject({ status: 0 })
      const seen = readFileSync(log, 'utf8')
        .trimEnd()
        .split('\n')
        .map((line) => line.split(' '))
      // On the main thread, in the worker and in its reward threads; those of other flags of V8 have a folder beside it.
      const [main = '', ...others] = seen.map(([folder = '']) => dirname(folder))
      expect(main).not.toBe('.')
      expect(others.length).toBeGreaterThan(1)
      expect(new Set(others)).toEqual(new Set([main]))
      expect(new Set(seen.map(([, passedOn]) => passedOn))).toEqual(new Set(['nothing']))
    },
  )

  it('reports the required version on an older Node', () => {
    const older = 'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } })'
    const { status, stdout, stderr } = run(['--version'], [preloaded(older)])
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' })
    expect(stderr).toMatch(/^millrace needs Node 24 or newer \(this is v20\.20\.2\)\. Run it with npx/)
    // What a program can start and end by a signal: npx does not pass one on.
    expect(stderr).toContain('node_modules/.bin/node node_modules/.bin/millrace')
  })
})
