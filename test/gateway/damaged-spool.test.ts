import { cpSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { runFiles } from '../../src/store/index.ts'
import { TestGateway, type Started } from './_test-gateway.ts'

test('a gateway whose spool was damaged says so, refuses who lost messages, and knows all others', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'gateway' }
  const said = [{ role: 'user', content: 'hello' }]
  const ask = (gateway: TestGateway, { key }: Started, messages: readonly object[]) =>
    gateway.ask('/v1/chat/completions', { key, body: { model: 'sim', messages } })
  let hit, whole
  {
    await using gateway = await TestGateway.start()
    const folder = join(gateway.root, 'gateway')
    hit = await gateway.startSession()
    whole = await gateway.startSession()
    const spool = join(folder, runFiles.spool)
    // Nothing reaches the database any more.
    using blocker = new DatabaseSync(join(folder, runFiles.database))
    blocker.exec('BEGIN IMMEDIATE')
    const from = statSync(spool).size
    const { body } = await ask(gateway, hit, said)
    const to = statSync(spool).size
    const [choice] = body['choices'] as { message: object }[]
    await ask(gateway, hit, [...said, choice?.message ?? {}, ...said])
    await ask(gateway, whole, said)
    // As if it was killed now, and a part of the disk was lost.
    cpSync(folder, join(runs.root, 'gateway'), { recursive: true })
    blocker.exec('ROLLBACK')
    const copied = join(runs.root, 'gateway', runFiles.spool)
    const bytes = readFileSync(copied)
    writeFileSync(copied, bytes.fill(0, from, to))
  }
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
