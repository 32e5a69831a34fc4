import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { fakeProcess } from '../support/cli/fake-terminal.ts'
import { writeRun } from '../support/cli/write-run.ts'
import { diskCheck } from '../../src/cli/commands/doctor/machine-checks.ts'
import { main } from '../../src/cli/main.ts'
import { recordBlocked } from '../../src/rollout/index.ts'
import { RunStore } from '../../src/store/index.ts'
import { millrace } from '../support/cli/millrace-process.ts'

async function doctor(root: string, ...words: string[]) {
  const parts = fakeProcess({ env: { MILLRACE_RUNS: root } })
  const code = await main(['doctor', ...words], parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

/** A run that a few things happened to. */
async function writeHinderedRun(root: string): Promise<void> {
  const outcomes = ['completed', 'model_error', 'worker_lost', 'worker_lost', 'cancelled'] as const
  writeRun({
    root,
    name: 'hindered',
    end: 'none',
    rollouts: outcomes.map((outcome, task) => ({
      record: { id: `${task}-0`, task: { index: task, id: `task-${task}` }, outcome, reward: null },
    })),
  })
  await using store = await RunStore.open({ folder: join(root, 'hindered') })
  const { journal } = store
  recordBlocked(journal, { worker: 1, lagMs: 2_100, blockedBy: 'parse (/home/me/env.ts:12)' })
  recordBlocked(journal, { worker: 3, lagMs: 4_200, blockedBy: 'parse (/home/me/env.ts:15)' })
  recordBlocked(journal, { worker: null, lagMs: 300, blockedBy: 'reward "tidy" of shop', component: 'tidy' })
  recordBlocked(journal, { worker: 2, lagMs: 2_000 })
  const note = (name: string, data: object): void =>
    journal.append({ kind: 'event', rollout: null, attempt: 0, name, at: Date.now(), data: JSON.stringify(data) })
  note('limit-change', { model: 'big', kind: 'concurrency', from: 100, to: 80, why: 'rate limited' })
  note('limit-change', { model: 'big', kind: 'concurrency', from: 80, to: 85, why: 'it keeps up' })
  note('limit-change', { model: 'big', kind: 'parked', from: 85, to: 1, why: 'connection refused' })
  note('limit-change', { of: 'another version' })
  note('mcp.away', { server: 'web', cause: 'timed out' })
  note('mcp.back', { server: 'web', ms: 8_600 })
  note('mcp.away', { server: 'web', cause: 'ECONNREFUSED' })
  note('mcp.back', { server: 'web', ms: 1_200 })
  note('mcp.away', { server: 'files', cause: 'it exited' })
  note('attempt-abandoned', { why: 'its worker died' })
  await journal.durable()
}

describe('millrace doctor', () => {
  test('shows the resources of the machine, and leaves the runs folder unchanged', async () => {
    await using runs = await temporaryRuns()
    const { code, stdout, stderr } = await millrace({ cwd: runs.root }, 'doctor')
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    for (const name of ['processors', 'memory', 'open files', 'node', 'timer lag', 'disk']) {
      expect(stdout).toMatch(new RegExp(`^[✓!] ${name} +\\S`, 'm'))
    }
    expect(stdout).toContain(process.version)
    expect(readdirSync(runs.root)).toEqual([])
  })

  test('prints the same facts as JSON', async () => {
    await using runs = await temporaryRuns()
    const { code, stdout } = await doctor(runs.root, '--json')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      processors: { usable: expect.any(Number) },
      memory: { totalBytes: expect.any(Number), availableBytes: expect.any(Number) },
      openFiles: { soft: expect.anything(), hard: expect.anything() },
      node: { version: process.version },
      timerLag: { p99Ms: expect.any(Number) },
      disk: { folder: runs.root, medianMs: expect.any(Number), freeBytes: expect.any(Number) },
    })
  })

  test('measures the nearest folder if the given one does not exist, and reports an unwritable one', async () => {
    await using runs = await temporaryRuns()
    const measured = await diskCheck(join(runs.root, 'not', 'yet'))
    expect(measured.facts).toMatchObject({ medianMs: expect.any(Number) })
    expect(readdirSync(runs.root)).toEqual([])
    // A file in its place, because a superuser may write to any folder.
    writeFileSync(join(runs.root, 'file'), '')
    expect((await diskCheck(join(runs.root, 'file'))).advice).toMatch(/choose another folder with --runs/)
  })
})

describe('millrace doctor <run>', () => {
  test('shows blocking functions, moved limits, absent tool servers and infrastructure failures', async () => {
    await using runs = await temporaryRuns()
    await writeHinderedRun(runs.root)
    const { code, stdout } = await doctor(runs.root, 'hindered')
    expect(code).toBe(0)
    expect(stdout).toMatch(/parse \(\/home\/me\/env\.ts:15\) +2 +4\.2s +1, 3 +just now/)
    expect(stdout).toMatch(/reward "tidy" of shop +1 +300ms +– +just now/)
    expect(stdout).toMatch(/an unknown function +1 +2\.0s +2 /)
    expect(stdout).toMatch(/big +1 +80 +1 +connection refused/)
    expect(stdout).toMatch(/web +2 +8\.6s +yes +ECONNREFUSED/)
    expect(stdout).toMatch(/files +1 +– +no +it exited/)
    expect(stdout).toMatch(/worker_lost +2 +40% +(npx )?millrace show hindered --outcome worker_lost/)
    expect(stdout).not.toContain('cancelled')
    expect(stdout).toContain('1 attempt started over; the last one because its worker died')
  })

  test('prints the same facts as JSON, worst first', async () => {
    await using runs = await temporaryRuns()
    await writeHinderedRun(runs.root)
    const { stdout } = await doctor(runs.root, 'hindered', '--json')
    const shown = JSON.parse(stdout)
    expect(shown).toMatchObject({
      run: 'hindered',
      ended: 5,
      limits: [{ model: 'big', cuts: 1, lowest: 80, parked: 1 }],
      servers: [
        { server: 'web', times: 2, longestMs: 8_600, isBack: true, lastWhy: 'ECONNREFUSED' },
        { server: 'files', times: 1, longestMs: 0, isBack: false, lastWhy: 'it exited' },
      ],
      outcomes: { model_error: 1, worker_lost: 2 },
      abandoned: { attempts: 1 },
    })
    expect(shown.blocked.map(({ worstMs }: { worstMs: number }) => worstMs)).toEqual([4_200, 2_000, 300])
  })

  test('shows empty tables for a run without incidents, and fails for an unknown run', async () => {
    await using runs = await temporaryRuns()
    writeRun({ root: runs.root, name: 'smooth', rollouts: [{ record: { id: '0-0' } }] })
    const { code, stdout } = await doctor(runs.root, 'smooth')
    expect(code).toBe(0)
    expect(stdout.match(/^ {2}none$/gm)).toHaveLength(4)
    expect(await doctor(runs.root, 'smoot')).toMatchObject({ code: 1, stderr: expect.stringContaining('smooth') })
  })
})

test('flags of a model without a model are refused', async () => {
  await using runs = await temporaryRuns()
  const refused = await doctor(runs.root, '--base-url', 'http://127.0.0.1:1/v1')
  expect(refused).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('--base-url') })
  expect(refused.stderr).toContain('--model')
})
