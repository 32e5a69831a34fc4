import { existsSync } from 'node:fs'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { fixture, objects, startMillrace } from '../support/cli/millrace-process.ts'

const deleted = /^error: \S+ was deleted during the run: no results are kept \[run_gone\]$/m

describe.concurrent('a run whose folder is deleted while it is in use', () => {
  it.each([[['-c', '1']], [['-c', '4', '--workers', '2']]])(
    'ends an evaluation, which does not claim that results are kept (%j)',
    async (how) => {
      await using place = await temporaryRuns()
      const cwd = place.root
      const words = [fixture('counting.ts'), '-m', 'sim', '--run', 'it', '--json', '--env.count=100000']
      await using running = startMillrace({ cwd }, 'eval', ...words, '--sim.ttftMs=20', ...how)
      await running.shows('stdout', '"type":"rollout"', 3)
      await rm(join(cwd, 'runs', 'it'), { recursive: true })
      const { code, stdout, stderr } = await running.ended
      expect(code).toBe(1)
      expect(stderr).toMatch(deleted)
      expect(stderr).not.toContain('are kept. Continue')
      expect(objects(stdout).at(-1)).not.toMatchObject({ type: 'summary' })
      expect(existsSync(join(cwd, 'runs', 'it'))).toBe(false)
    },
  )

  it('ends an idle server', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = [fixture('counting.ts'), '-m', 'sim', '--run', 'it', '--port', '0']
    await using running = startMillrace({ cwd }, 'serve', ...words)
    await running.shows('stdout', 'serving on ')
    await rm(join(cwd, 'runs', 'it'), { recursive: true })
    const { code, stderr } = await running.ended
    expect([code, stderr]).toEqual([1, expect.stringMatching(deleted)])
    expect(await readdir(join(cwd, 'runs'))).toEqual([])
  })

  it('ends an idle gateway', async () => {
    await using place = await temporaryRuns()
    await using backend = await SimulatorServer.start({ port: 0 })
    const cwd = place.root
    const words = ['--backend', backend.url, '--port', '0']
    await using running = startMillrace({ cwd }, 'gateway', ...words)
    await running.shows('stdout', 'gateway on ')
    await rm(join(cwd, 'runs', 'gateway'), { recursive: true })
    const { code, stderr } = await running.ended
    expect([code, stderr]).toEqual([1, expect.stringMatching(deleted)])
    expect(await readdir(join(cwd, 'runs'))).toEqual([])
  })
})
