import { cpSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { runFiles } from '../../src/store/index.ts'
import { startGateway } from './_gateway-process.ts'
import { TestGateway, type Started } from './_test-gateway.ts'

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
    expect((await ask(gateway, hit, said)).status).toBe(503)
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
