import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { RunReader } from '../../src/store/index.ts'
import { fixture, millrace, objects, reportedIds, startMillrace } from '../support/cli/millrace-process.ts'

const common = ['-m', 'sim', '--seed', '7', '-c', '4', '--run', 'it', '--json']

/** The words of the command that the notice says to continue with. */
function continuation(stderr: string): string[] {
  const [, command = ''] = /^ {2}(?:npx )?millrace (eval .*)$/m.exec(stderr) ?? []
  return command.split(' ')
}

describe.concurrent('an interrupted run', () => {
  it.each([
    ['SIGINT', 130, 'counting.ts', []],
    ['SIGTERM', 143, 'counting.ts', []],
    ['SIGHUP', 129, 'counting.ts', []],
    ['SIGINT', 130, 'counting.ts', ['--workers', '2']],
    ['SIGINT', 130, 'workers/counting.ts', ['--workers', '2']],
  ] as const)('drains at %s, ends with %i, and can be continued (%s %j)', async (signal, code, module, where) => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = ['eval', fixture(module), ...common, '--env.count=400', '--sim.ttftMs=40', ...where]
    await using running = startMillrace({ cwd }, ...words)
    await running.shows('stdout', '"type":"rollout"', 5)
    running.process.kill(signal)
    const first = await running.ended
    expect(first.code, first.stderr).toBe(code)
    expect(first.stderr).toMatch(/Draining: \d+ running rollouts? may end, no new one starts/)
    expect(first.stderr).toMatch(/The run was drained before its end; \d+ ended rollouts are kept\. Continue with:/)
    const summary = objects(first.stdout).at(-1)
    expect(summary).toMatchObject({ type: 'summary', end: 'drained' })
    // What was running has ended and was reported: nothing is left half done.
    using reader = RunReader.open(join(cwd, 'runs', 'it'))
    expect([...reader.unfinished()]).toEqual([])
    const ids = reportedIds(first.stdout)
    expect(ids.length).toBeLessThan(400)
    expect(summary?.['rollouts']).toBe(ids.length)

    const second = await millrace({ cwd }, ...continuation(first.stderr), '-c', '100')
    expect(second.code, second.stderr).toBe(0)
    expect(objects(second.stdout).at(-1)).toMatchObject({ end: 'complete', rollouts: 400, scored: 400 })
    const all = [...ids, ...reportedIds(second.stdout)]
    expect(all).toHaveLength(400)
    expect(new Set(all).size).toBe(400)
  })

  it('stops at the second signal without waiting for running rollouts', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    // A reply takes half an hour, so only being cancelled can end it.
    const slow = ['--no-preflight', '--sim.ttftMs=1800000', '--sim.spread=0']
    const words = ['eval', fixture('unhandled.ts'), '--env.how=prints', '-m', 'sim', '-c', '4', '--run', 'it', '--json']
    await using running = startMillrace({ cwd }, ...words, ...slow)
    await running.shows('stderr', 'at task', 4)
    running.process.kill('SIGINT')
    await running.shows('stderr', 'Draining: 4 running rollouts may end')
    running.process.kill('SIGINT')
    const ended = await running.ended
    expect(ended.code, ended.stderr).toBe(130)
    expect(ended.stderr).toContain('Stopping. Ended rollouts are kept.')
    expect(objects(ended.stdout).at(-1)).toMatchObject({ type: 'summary', end: 'stopped', rollouts: 0 })
    expect(continuation(ended.stderr).slice(-2)).toEqual(['--run', 'it'])
    using reader = RunReader.open(join(cwd, 'runs', 'it'))
    expect(Array.from(reader.unfinished(), ({ state }) => state)).toEqual(Array(4).fill('cut-off'))
  })

  it('stops at the first signal if no rollout has begun, and leaves no files', async () => {
    await using place = await temporaryRuns()
    await using server = await SimulatorServer.start({ 'faults.hang': 1 })
    const cwd = place.root
    const words = ['eval', fixture('counting.ts'), '-m', 'any', '--base-url', server.url]
    await using running = startMillrace({ cwd }, ...words)
    await running.shows('stderr', 'checking any with one token…')
    running.process.kill('SIGINT')
    const ended = await running.ended
    expect(ended).toMatchObject({ code: 130, stdout: '' })
    expect(ended.stderr).toContain('Stopped before the first rollout: nothing was run.')
    expect(await readdir(join(cwd, 'runs'))).toEqual([])
  })
})
