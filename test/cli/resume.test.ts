import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, it } from 'vitest'
import { fixture, millrace, objects, reportedIds, startMillrace, type Ended } from '../support/cli/millrace-process.ts'

const counting = ['eval', fixture('counting.ts'), '-m', 'sim', '-c', '4', '--json']

function startOf({ stdout }: Ended): Record<string, unknown> | undefined {
  return objects(stdout).find(({ type }) => type === 'start')
}

function summaryOf({ stdout }: Ended): Record<string, unknown> | undefined {
  return objects(stdout).find(({ type }) => type === 'summary')
}

describe.concurrent('the same command again', () => {
  it.each(['1', '4'])(
    'continues the run that was killed with %s at once, and repeats no rollout that had ended',
    async (atOnce) => {
      await using place = await temporaryRuns()
      const cwd = place.root
      const words = [...counting, '--env.count=400', '--sim.ttftMs=30']
      await using running = startMillrace({ cwd }, ...words, '-c', atOnce)
      await running.shows('stdout', '"type":"rollout"', 8)
      running.process.kill('SIGKILL')
      const killed = await running.ended
      const before = reportedIds(killed.stdout.slice(0, killed.stdout.lastIndexOf('\n') + 1))

      // How many run at once is no part of what the run is.
      const again = await millrace({ cwd }, ...words, '-c', '100')
      expect(again.code, again.stderr).toBe(0)
      expect(startOf(again)).toMatchObject({
        notices: [expect.stringMatching(/^continuing run counting--sim--\d+-\d+: \d+ rollouts had ended$/)],
      })
      expect(startOf(again)?.['resumed']).toBeGreaterThanOrEqual(before.length)
      expect(summaryOf(again)).toMatchObject({ end: 'complete', rollouts: 400, scored: 400 })
      const after = reportedIds(again.stdout)
      expect(after.filter((id) => before.includes(id))).toEqual([])
      expect(await readdir(join(cwd, 'runs'))).toHaveLength(1)
    },
  )

  it('starts a new run if the last one is complete, unless the run is named', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = [...counting, '--env.count=5']
    const first = startOf(await millrace({ cwd }, ...words))
    const second = startOf(await millrace({ cwd }, ...words))
    expect(second).toMatchObject({ resumed: 0 })
    expect(second?.['run']).not.toBe(first?.['run'])
    const named = await millrace({ cwd }, ...words, '--run', String(first?.['run']))
    expect(named.code, named.stderr).toBe(0)
    expect(startOf(named)).toMatchObject({ run: first?.['run'], resumed: 5 })
    expect(reportedIds(named.stdout)).toEqual([])
    expect(summaryOf(named)).toMatchObject({ rollouts: 5, scored: 5 })
  })

  it('runs more tasks with a higher --limit, and accepts another concurrency', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = [...counting, '--env.count=30', '--run', 'it']
    await millrace({ cwd }, ...words, '--limit', '5')
    const further = await millrace({ cwd }, ...words, '--limit', '12', '-c', '9')
    expect(startOf(further)).toMatchObject({ resumed: 5 })
    expect(reportedIds(further.stdout)).toHaveLength(7)
  })

  it('with --new starts another run beside an unfinished one; --resume then continues the newest', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const words = [...counting, '--env.count=400', '--sim.ttftMs=30']
    const drained: unknown[] = []
    for (const more of [[], ['--new']]) {
      await using running = startMillrace({ cwd }, ...words, ...more)
      await running.shows('stdout', '"type":"rollout"')
      running.process.kill('SIGTERM')
      const ended = await running.ended
      expect(ended.code, ended.stderr).toBe(143)
      drained.push(startOf(ended)?.['run'])
    }
    expect(new Set(drained).size).toBe(2)
    const resumed = await millrace({ cwd }, ...words, '-c', '100', '--resume')
    expect(resumed.code, resumed.stderr).toBe(0)
    expect(startOf(resumed)?.['run']).toBe(drained[1])
    const older = await millrace({ cwd }, ...words, '-c', '100', '--resume', String(drained[0]))
    expect(startOf(older)?.['run']).toBe(drained[0])
    expect(summaryOf(older)).toMatchObject({ end: 'complete', rollouts: 400 })
    const none = await millrace({ cwd }, ...words, '--resume')
    expect(none).toMatchObject({ code: 1, stdout: '' })
    expect(none.stderr).toContain('there is no unfinished run of this configuration in runs to continue')
  })

  it('with --retry-failed repeats only the rollouts without a score', async () => {
    await using place = await temporaryRuns()
    const cwd = place.root
    const mend = join(cwd, 'mended')
    const words = ['eval', fixture('mended.ts'), '-m', 'sim', '-n', '2', `--env.mend=${mend}`, '--json']
    const first = await millrace({ cwd }, ...words)
    expect(first.code).toBe(3)
    expect(summaryOf(first)).toMatchObject({
      end: 'complete',
      rollouts: 12,
      scored: 8,
      outcomes: { env_error: 4 },
      reasons: { env_error: expect.stringContaining('the image is missing') },
    })
    const [, command = ''] =
      /4 rollouts ended without a score\. With the cause corrected, run them again:\n {2}(?:npx )?(.*)/.exec(
        first.stderr,
      ) ?? []
    expect(command).toMatch(/^millrace eval .* --retry-failed --run mended--sim--/)

    await writeFile(mend, '')
    const second = await millrace({ cwd }, ...command.split(' ').slice(1))
    expect(second.code, second.stderr).toBe(0)
    expect(startOf(second)).toMatchObject({
      notices: [
        'running again: 4 rollouts that ended without a score',
        expect.stringContaining('the results of 8 rollouts are kept'),
      ],
    })
    expect(reportedIds(second.stdout).toSorted()).toEqual(['1-0', '1-1', '4-0', '4-1'])
    expect(summaryOf(second)).toMatchObject({ rollouts: 12, scored: 12, outcomes: { env_error: 0 } })

    const third = await millrace({ cwd }, ...words, '--retry-failed')
    expect(third.code, third.stderr).toBe(0)
    expect(startOf(third)?.['notices']).toContainEqual(expect.stringContaining('there is nothing to run again'))
    expect(reportedIds(third.stdout)).toEqual([])
  })
})
