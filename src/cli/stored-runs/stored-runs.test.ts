import { existsSync, mkdirSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it } from 'vitest'
import { RunStore } from '../../store/index.ts'
import { temporaryRuns } from '../../testing/index.ts'
import { fakeProcess } from '../../../test/support/cli/fake-terminal.ts'
import { writeRun, type WrittenRollout } from '../../../test/support/cli/write-run.ts'
import { main } from '../main.ts'

async function run(root: string, ...args: string[]) {
  const parts = fakeProcess({ env: { MILLRACE_RUNS: root } })
  const code = await main(args, parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

/** Leaves what a run has from its first moment on, before its journal is made. */
function writeStartingRun(root: string, name: string): void {
  writeRun({ root, name, rollouts: [], end: 'none' })
  const { launches, ...file } = JSON.parse(readFileSync(join(root, name, 'run.json'), 'utf8'))
  rmSync(join(root, name), { recursive: true })
  mkdirSync(join(root, name))
  const [{ startedAt }] = launches
  writeFileSync(join(root, name, 'run.json'), JSON.stringify({ ...file, state: 'running', launches: [{ startedAt }] }))
}

function holdLock(folder: string): DatabaseSync {
  const lock = new DatabaseSync(join(folder, 'lock'))
  lock.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
  return lock
}

const rollouts: readonly WrittenRollout[] = [1, 0, 1].map((reward, task) => ({
  record: { id: `${task}-0`, task: { index: task, id: `task-${task}` }, reward },
}))

describe('millrace list', () => {
  it('shows runs with state, environment, model, progress and score', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'first', rollouts })
    writeRun({ root: runs.root, name: 'second', rollouts: rollouts.slice(0, 1), end: 'drained' })
    const { code, stdout } = await run(runs.root, 'list')
    expect(code).toBe(0)
    const lines = stdout.trimEnd().split('\n')
    expect(lines[0]).toMatch(/^run +state +environment +model +ended +score +started$/)
    expect(lines).toHaveLength(3)
    expect(stdout).toMatch(/^first +complete +arithmetic +sim +3 +0\.667 +just now$/m)
    expect(stdout).toMatch(/^second +unfinished +arithmetic +sim +1 +1\.000 +just now$/m)
    expect((await run(runs.root, 'list', '--limit', '1')).stdout).toContain('1 more; --limit shows them')
    const objects = (await run(runs.root, 'list', '--json')).stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(objects).toContainEqual(
      expect.objectContaining({ run: 'first', state: 'complete', ended: 3, scored: 3, score: expect.closeTo(2 / 3) }),
    )
  })

  it('shows the settings that differ between runs of one environment', async () => {
    await using runs = await temporaryRuns()
    const config = (skill: number, sampling: object) => ({
      environment: { name: 'arithmetic', specifier: null, options: { level: skill > 0.5 ? 'hard' : 'easy', same: 1 } },
      models: [
        { name: 'sim', backends: [], simulator: { skill } },
        { name: 'other', backends: [] },
      ],
      judge: 'sim',
      concurrency: skill * 100,
      limits: { maxTurns: 50, wallTimeoutMs: skill },
      sampling: { ...sampling },
      seed: null,
    })
    const other = { environment: { name: 'other', specifier: null, options: {} }, sampling: { temperature: 9 } }
    writeRun({ root: runs.root, name: 'a', rollouts, config: config(0.5, { temperature: 0.25, topP: 1 }) })
    writeRun({ root: runs.root, name: 'b', rollouts, attempts: 4, config: config(0.75, { topP: 1 }) })
    writeRun({ root: runs.root, name: 'c', rollouts, config: other })
    const { stdout } = await run(runs.root, 'list')
    expect(stdout).toMatch(/^run .* started +differs in$/m)
    expect(stdout).toMatch(/^a .* just now +attempts=1 env\.level=easy sim\.skill=0\.5 temperature=0\.25$/m)
    expect(stdout).toMatch(/^b .* just now +attempts=4 env\.level=hard sim\.skill=0\.75$/m)
    expect(stdout).toMatch(/^c .* just now$/m)
    const objects = (await run(runs.root, 'list', '--json')).stdout.trimEnd().split('\n')
    expect(objects.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ run: 'b', differs: { attempts: 4, 'env.level': 'hard', 'sim.skill': 0.75 } }),
    )
  })

  it('shows the expected number of rollouts, and show names the command to continue', async () => {
    await using runs = await temporaryRuns()
    const provenance = { tasks: 5 }
    writeRun({ root: runs.root, name: 'open', rollouts, attempts: 2, end: 'drained', provenance })
    writeRun({ root: runs.root, name: 'unknown', rollouts, attempts: 2, end: 'none' })
    const results = { ended: 3, scored: 3, score: 1 }
    writeRun({ root: runs.root, name: 'costly', rollouts, end: 'max_cost', provenance: { tasks: 4, results } })
    const { stdout } = await run(runs.root, 'list')
    expect(stdout).toMatch(/^open .* 3 of 10 +0\.667/m)
    expect(stdout).toMatch(/^unknown .* sim +3 +0\.667/m)
    expect(stdout).toMatch(/^costly .* 3 of 4 +1\.000/m)
    for (const [name, line] of [
      ['open', '3 of 10 rollouts ended so far; the command that started it, with --run open, continues it'],
      ['unknown', '3 rollouts ended so far; the command that started it, with --run unknown, continues it'],
      [
        'costly',
        '3 of 4 rollouts ended so far; the command that started it, with --run costly and a higher --max-cost, continues it',
      ],
    ] as const) {
      expect((await run(runs.root, 'show', name)).stdout.trimEnd().split('\n').at(-1)).toBe(line)
    }
    expect(JSON.parse((await run(runs.root, 'show', 'open', '--json')).stdout)).toMatchObject({ planned: 10 })
    writeRun({ root: runs.root, name: 'done', rollouts, provenance: { tasks: 3 } })
    expect((await run(runs.root, 'show', 'done')).stdout).not.toContain('so far')
  })

  it('reports a served run as drained, as show does', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'served', rollouts, isServed: true, end: 'drained' })
    expect((await run(runs.root, 'list')).stdout).toMatch(/^served +drained /m)
    expect(JSON.parse((await run(runs.root, 'list', '--json')).stdout)).toMatchObject({
      state: 'unfinished',
      end: 'drained',
    })
    const { stdout } = await run(runs.root, 'show', 'served')
    expect(stdout).toContain('drained')
    expect(stdout).not.toContain('so far')
  })

  it('names unreadable runs and lists the others', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'good', rollouts })
    mkdirSync(join(runs.root, 'bad'))
    writeFileSync(join(runs.root, 'bad', 'run.json'), '{')
    const { code, stdout, stderr } = await run(runs.root, 'list')
    expect(code).toBe(0)
    expect(stdout).toContain('good')
    expect(stderr).toContain('bad cannot be read as a run')
  })

  it('uses the results in run.json, unless the last launch was cut off', async () => {
    await using runs = await temporaryRuns()
    const results = { ended: 123_456, scored: 99, score: 0.25 }
    writeRun({ root: runs.root, name: 'large', rollouts, provenance: { results } })
    writeRun({ root: runs.root, name: 'cut-off', rollouts, provenance: { results }, end: 'none' })
    const { stdout } = await run(runs.root, 'list')
    expect(stdout).toMatch(/^large +complete +arithmetic +sim +123,456 +0\.250 +just now$/m)
    expect(stdout).toMatch(/^cut-off +unfinished +arithmetic +sim +3 +0\.667 +just now$/m)
  })

  it('treats a run without a journal like a run without results', async () => {
    await using runs = await temporaryRuns()
    writeStartingRun(runs.root, 'early')
    expect((await run(runs.root, 'list')).stdout).toMatch(/^early +unfinished +arithmetic +sim +0 +– /m)
    expect(await run(runs.root, 'export', 'early')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'no rollout of run early has ended yet; the command that started it, with --run early, continues it\n',
    })
    expect(await run(runs.root, 'show', 'early', '0-0')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('run early has no rollout 0-0; no rollout has ended yet'),
    })
    using _lock = holdLock(join(runs.root, 'early'))
    expect((await run(runs.root, 'list')).stdout).toMatch(/^early +running +arithmetic +sim +0 +– /m)
    expect((await run(runs.root, 'export', 'early')).stderr).toContain('a process is working on it')
  })

  it('reports a folder without runs', async () => {
    await using runs = await temporaryRuns()
    expect(await run(runs.root, 'list')).toMatchObject({
      code: 0,
      stdout: `no runs in ${runs.root}; npx millrace eval makes one\n`,
    })
    const mistyped = join(runs.root, 'rnus')
    expect(await run(mistyped, 'list')).toMatchObject({
      code: 0,
      stdout: `no runs in ${mistyped}, which does not exist; npx millrace eval makes one\n`,
    })
    expect(await run(mistyped, 'list', '--json')).toEqual({
      code: 0,
      stdout: '',
      stderr: `no runs in ${mistyped}, which does not exist; npx millrace eval makes one\n`,
    })
    expect(await run(mistyped, 'prune')).toMatchObject({
      code: 0,
      stdout: `nothing to delete in ${mistyped}, which does not exist\n`,
    })
  })
})

describe('millrace export', () => {
  it('writes one rollout per line, to stdout or a file', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts })
    const { code, stdout } = await run(runs.root, 'export', 'nightly')
    expect(code).toBe(0)
    const records = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: string; messages: unknown[] })
    expect(records.map(({ id }) => id)).toEqual(['0-0', '1-0', '2-0'])
    expect(records[0]?.messages).toEqual([{ role: 'user', content: 'What is 2+2?' }])
    const file = join(runs.root, 'out.jsonl')
    expect(await run(runs.root, 'export', 'nightly', '--tokens', '-o', file)).toMatchObject({
      code: 0,
      stdout: '',
    })
    expect(JSON.parse(readFileSync(file, 'utf8').split('\n')[0] ?? '')).toMatchObject({
      id: '0-0',
      nodes: [{ seq: 0 }],
    })
  })

  it('ends without an error when its reader closes the pipe', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts })
    const parts = fakeProcess({ env: { MILLRACE_RUNS: runs.root } })
    parts.stdout.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
    expect(await main(['export', 'nightly'], parts)).toBe(0)
    expect(parts.stderr.text).toBe('')
  })

  it('reports a file that cannot be written', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'nightly', rollouts })
    const { code, stderr } = await run(runs.root, 'export', 'nightly', '-o', join(runs.root, 'missing', 'out.jsonl'))
    expect(code).toBe(1)
    expect(stderr).toMatch(/cannot write .*out\.jsonl \(ENOENT\); choose another with -o \[folder_unwritable\]/)
  })
})

describe('millrace prune', () => {
  it('lists first, deletes only with --yes, and keeps runs that can be continued', async () => {
    await using runs = await temporaryRuns()
    for (const name of ['a', 'b']) writeRun({ root: runs.root, name, rollouts })
    writeRun({ root: runs.root, name: 'unfinished', rollouts, end: 'drained' })
    expect((await run(runs.root, 'prune')).stdout).toBe(`nothing to delete in ${runs.root}\n`)
    const listed = await run(runs.root, 'prune', '--keep', '0')
    expect(listed.stdout).toMatch(/2 runs, .*; --yes deletes them\n/)
    expect(existsSync(join(runs.root, 'a'))).toBe(true)
    const deleted = await run(runs.root, 'prune', '--keep', '0', '--yes')
    expect(deleted.code).toBe(0)
    expect(deleted.stdout).toMatch(/2 runs deleted/)
    expect(['a', 'b', 'unfinished'].map((name) => existsSync(join(runs.root, name)))).toEqual([false, false, true])
    const left = await run(runs.root, 'prune', '--keep', '0', '--yes')
    expect(left.stdout).toBe(`nothing to delete in ${runs.root}; --unfinished: also 1 run that could be continued\n`)
    await run(runs.root, 'prune', '--keep', '0', '--unfinished', '--yes')
    expect(existsSync(join(runs.root, 'unfinished'))).toBe(false)
  })

  it('deletes one run by its name, and reports why one is kept', async () => {
    await using runs = await temporaryRuns()
    for (const name of ['a', 'b']) writeRun({ root: runs.root, name, rollouts })
    writeRun({ root: runs.root, name: 'unfinished', rollouts, end: 'drained' })
    const prune = (...args: string[]) => run(runs.root, 'prune', ...args)
    expect((await prune('a')).stdout).toMatch(/^a +complete .*\n1 run, .*; --yes deletes it\n$/m)
    const deleted = await prune('a', '--yes', '--json')
    expect(JSON.parse(deleted.stdout)).toMatchObject({ run: 'a', state: 'complete', removed: true })
    expect(['a', 'b'].map((name) => existsSync(join(runs.root, name)))).toEqual([false, true])
    expect(await prune('unfinished', '--yes')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('run unfinished could be continued; add --unfinished to delete it'),
    })
    expect(await prune('unfinishd', '--yes')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('did you mean unfinished?'),
    })
    expect(await prune('b', '--keep', '0')).toMatchObject({ code: 2 })
    const store = await RunStore.open({ folder: join(runs.root, 'b') })
    expect(await prune('b', '--yes', '--unfinished')).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('run b is in use and was not deleted'),
    })
    await store.close()
    expect(existsSync(join(runs.root, 'b'))).toBe(true)
    expect((await prune(join(runs.root, 'unfinished'), '--unfinished', '--yes')).stdout).toContain('1 run deleted')
  })

  it('refuses a run outside of the runs folder, and names the command to delete it', async () => {
    await using runs = await temporaryRuns()
    await using disk = await temporaryRuns()
    writeRun({ root: disk.root, name: 'moved', rollouts })
    writeRun({ root: runs.root, name: 'inner', rollouts })
    symlinkSync(join(disk.root, 'moved'), join(runs.root, 'link'))
    symlinkSync(runs.root, join(disk.root, 'roots-link'))
    const place = realpathSync(disk.root)
    const there = `to delete it there: npx millrace prune moved --runs ${place}`
    const outside = `run moved is in ${place}, outside of the runs folder ${runs.root}; ${there}`
    const ways = {
      link: `run link is only a link here; ${there}`,
      [join(runs.root, 'link')]: `run link is only a link here; ${there}`,
      [join(disk.root, 'moved')]: outside,
      [relative(process.cwd(), join(disk.root, 'moved'))]: outside,
      [`${runs.root}/../${basename(disk.root)}/moved`]: outside,
    }
    for (const [name, stderr] of Object.entries(ways)) {
      for (const args of [[], ['--yes'], ['--yes', '--unfinished']]) {
        const refused = { code: 2, stdout: '', stderr: expect.stringContaining(stderr) }
        expect(await run(runs.root, 'prune', name, ...args)).toMatchObject(refused)
      }
    }
    expect((await run(runs.root, 'prune', 'moved', '--runs', disk.root, '--yes')).stdout).toContain('1 run deleted')
    expect((await run(runs.root, 'prune', join(disk.root, 'roots-link', 'inner'), '--yes')).stdout).toContain('1 run')
    expect(existsSync(join(runs.root, 'inner'))).toBe(false)
  })
})
