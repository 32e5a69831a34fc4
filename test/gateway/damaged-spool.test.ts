import { cpSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { chmod } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { SpoolFile } from '../../src/store/_spool-file.ts'
import { runFiles } from '../../src/store/index.ts'
import { millrace } from '../cli/_millrace.ts'
import { startGateway } from './_gateway-process.ts'
import { TestGateway, type Started } from './_test-gateway.ts'

/** Nothing is forbidden to root, so that somebody else must look. */
const reader = process.getuid?.() === 0 ? { uid: 65_534 } : {}

const said = [{ role: 'user', content: 'hello' }]

const ask = (gateway: TestGateway, { key }: Started, messages: readonly object[]) =>
  gateway.ask('/v1/chat/completions', { key, body: { model: 'sim', messages } })

/**
 * The run of a gateway as if it was killed, with all that was said in its spool alone: twice in session `hit`, and in `whole`.
 * The first reply in `hit` is at `lost` of the spool.
 */
async function leaveRun(root: string) {
  await using gateway = await TestGateway.start()
  const folder = join(gateway.root, 'gateway')
  const hit = await gateway.startSession()
  const whole = await gateway.startSession()
  // Nothing reaches the database any more.
  using blocker = new DatabaseSync(join(folder, runFiles.database))
  blocker.exec('BEGIN IMMEDIATE')
  const size = (): number => statSync(join(folder, runFiles.spool)).size
  const from = size()
  const { body } = await ask(gateway, hit, said)
  const lost = { from, to: size() }
  const [choice] = body['choices'] as { message: object }[]
  await ask(gateway, hit, [...said, choice?.message ?? {}, ...said])
  await ask(gateway, whole, said)
  cpSync(folder, join(root, 'gateway'), { recursive: true })
  blocker.exec('ROLLBACK')
  return { hit, whole, lost, spool: join(root, 'gateway', runFiles.spool) }
}

function zero(path: string, { from, to }: { readonly from: number; readonly to: number }): void {
  writeFileSync(path, readFileSync(path).fill(0, from, to))
}

test('a gateway whose spool was damaged says so, refuses who lost messages, and knows all others', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'gateway' }
  const { hit, whole, lost, spool } = await leaveRun(runs.root)
  zero(spool, lost)
  {
    await using gateway = await TestGateway.start({ run })
    expect(gateway.server.notices).toEqual([
      expect.stringMatching(/^journal\.spool was damaged: \d+ of the \d+ frames/),
    ])
    const refused = await ask(gateway, hit, said)
    expect(refused.status).toBe(410)
    expect(refused.body).toMatchObject({ error: { code: 'session_damaged', message: expect.stringContaining(hit.id) } })
    const alone = await gateway.ask(`/v1/export?session=${hit.id}`)
    expect(alone.status).toBe(410)
    expect(alone.body).toMatchObject({ error: { code: 'session_damaged', message: expect.stringContaining(hit.id) } })
    expect((await ask(gateway, whole, said)).status).toBe(200)
    const { text } = await gateway.ask('/v1/export')
    const rows = text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Record<string, unknown>]))
    expect(rows.filter(({ session }) => session === hit.id)).toMatchObject([{ kind: 'damaged' }])
    expect(rows.filter(({ session }) => session === whole.id)).toMatchObject([
      { kind: 'interaction' },
      { kind: 'interaction' },
    ])
  }
  await using again = await TestGateway.start({ run })
  expect(again.server.notices).toEqual([])
})

test('what a damaged spool cost is a warning of the log', async () => {
  await using runs = await temporaryRuns()
  const { lost, spool } = await leaveRun(runs.root)
  zero(spool, lost)
  await using gateway = await startGateway(runs.root, '--backend', 'sim', '--runs', '.', '--log-level', 'warn')
  await gateway.running.shows('stderr', '"msg":"journal.spool was damaged: ')
})

test('the run of a gateway is shown with what a damaged spool cost', async () => {
  await using runs = await temporaryRuns()
  const { lost, spool } = await leaveRun(runs.root)
  zero(spool, lost)
  const show = (...words: readonly string[]) => millrace({ cwd: runs.root }, 'show', 'gateway', '--runs', '.', ...words)
  const told = /^journal\.spool was damaged: 1 of the \d frames that were left there are lost\./m
  expect(await show()).toMatchObject({ code: 0, stdout: expect.stringMatching(told), stderr: '' })
  const { losses } = JSON.parse((await show('--json')).stdout) as { losses: string[] }
  expect(losses).toEqual([expect.stringMatching(told)])
})

const exported = (cwd: string, ...words: readonly string[]) =>
  millrace({ cwd }, 'export', 'gateway', '--runs', '.', ...words)

test('an export says what a damaged spool cost, now and later, unless it is of sessions that began since', async () => {
  await using runs = await temporaryRuns()
  const { hit, whole, lost, spool } = await leaveRun(runs.root)
  zero(spool, lost)
  const told = {
    code: 1,
    stdout: expect.stringContaining(whole.id),
    stderr: expect.stringMatching(/^journal\.spool was damaged: 1 of the \d frames that were left there are lost\./m),
  }
  const first = await exported(runs.root)
  expect(first).toMatchObject(told)
  expect(first.stderr).toContain(`session ${hit.id} is damaged`)
  let later: Started
  {
    await using gateway = await TestGateway.start({ run: { root: runs.root, name: 'gateway' } })
    later = await gateway.startSession()
    await ask(gateway, later, said)
  }
  expect(await exported(runs.root)).toMatchObject(told)
  expect(await exported(runs.root, '--session', whole.id)).toMatchObject(told)
  expect(await exported(runs.root, '--session', later.id)).toMatchObject({ code: 0, stderr: '' })
})

test.each([
  ['is damaged at its beginning', (path: string) => zero(path, { from: 0, to: 16 })],
  [
    'goes on from messages that journal.sqlite does not have',
    (path: string) => {
      const file = new SpoolFile(dirname(path))
      file.append({ number: 99, bytes: Buffer.from('of another run') })
      file.close()
    },
  ],
])('an export without a spool that %s says so, whether it may write there or not', async (problem, damage) => {
  await using runs = await temporaryRuns()
  const { whole, spool } = await leaveRun(runs.root)
  damage(spool)
  const expected = {
    code: 1,
    stdout: expect.stringContaining(whole.id),
    stderr: expect.stringContaining(`what was written down last is missing: ${spool} ${problem}`),
  }
  expect(await exported(runs.root)).toMatchObject(expected)
  const folder = dirname(spool)
  await using _writable = { [Symbol.asyncDispose]: () => chmod(folder, 0o755) }
  await chmod(runs.root, 0o755)
  await chmod(folder, 0o555)
  expect(await millrace({ cwd: runs.root, ...reader }, 'export', folder)).toMatchObject(expected)
})
