import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { journalInto } from '../../../../test/support/gateway/random-session.ts'
import { emptyUsage, type CallRecord, type Message, type MessageNode } from '../../../schema/index.ts'
import { AttemptRecorder, RunStore, type JournalEntry } from '../../../store/index.ts'
import { temporaryRuns } from '../../../testing/index.ts'
import { writeStoredRun } from '../../../../test/support/store/write-stored-run.ts'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { main } from '../../main.ts'

async function run(root: string, ...args: string[]) {
  const parts = fakeProcess({ env: { MILLRACE_RUNS: root } })
  const code = await main(args, parts)
  return { code, stdout: parts.stdout.text, stderr: parts.stderr.text }
}

const call = (replyId: string): CallRecord => ({
  model: 'policy',
  backend: 'b',
  finishReason: 'stop',
  usage: { ...emptyUsage(), calls: 1, input: 12, output: 2 },
  cost: 0,
  tries: 1,
  ms: 5,
  waitMs: 0,
  replyId,
})

const node = (seq: number, parent: number | null, content: string, more: Partial<MessageNode> = {}): MessageNode => {
  const sampled = more.call !== undefined || more.discarded !== undefined
  const message: Message = { role: sampled ? 'assistant' : 'user', content }
  return { seq, parent, hash: `h${seq}`, message, sampled, at: seq, ...more }
}

const tokens = { promptIds: new Int32Array([1, 2]), ids: new Int32Array([3, 4]), logprobs: new Float32Array([-1, -2]) }
const { finishReason: _none, ...lostCall } = call('reply-lost')

/** Two answers to one question, one of which was lost, and a conversation that starts anew. */
const conversation: readonly MessageNode[] = [
  node(0, null, 'What is 2+2?'),
  node(1, 0, 'half an ans', { discarded: { ...lostCall, why: 'client_gone' } }),
  node(2, null, 'Be a pirate.'),
  node(3, 0, 'It is 4.', { call: call('reply-a'), tokens }),
  node(4, 2, 'Arr!', { call: call('reply-b') }),
]

/** Sessions `ses-0` and so on, the first of which talked and ended; the others are open and said nothing. */
function writeGatewayRun(
  root: string,
  sessions: number,
  { tenants = ['default'], nodes = conversation }: { tenants?: string[]; nodes?: readonly MessageNode[] } = {},
): void {
  const config = { kind: 'gateway', models: [{ name: 'policy' }, { name: 'claude' }] }
  const entries = Array.from({ length: sessions }, (_, index): JournalEntry => {
    const tenant = tenants[index % tenants.length] ?? ''
    const names = { session: `ses-${index}`, group: 'grp-1', tenant, keyDigest: `digest-${index}` }
    return { kind: 'session-start', ...names, at: 1000 + index, data: '{"taskId":"sums"}' }
  })
  const recorder = new AttemptRecorder(journalInto(entries), 'ses-0', 0)
  for (const each of nodes) recorder.node(each, JSON.stringify(each.message))
  entries.push(
    { kind: 'reward', session: 'ses-0', node: 3, value: 0.25, at: 2000 },
    { kind: 'reward', session: 'ses-0', node: null, value: 1, at: 2000 },
    { kind: 'session-end', session: 'ses-0', at: 3000, why: 'ended' },
  )
  const created = { name: 'gateway', configDigest: 'digest', config, provenance: {} }
  writeStoredRun(join(root, 'gateway'), created, entries)
}

test('the list distinguishes a gateway from an evaluation, and counts its sessions', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 3)
  expect((await run(runs.root, 'list')).stdout).toMatch(/gateway +unfinished +gateway +policy, claude +1 \(2 open\)/)
  const listed = JSON.parse((await run(runs.root, 'list', '--json')).stdout) as Record<string, unknown>
  expect(listed).toMatchObject({ run: 'gateway', environment: 'gateway', model: 'policy, claude', ended: 1, open: 2 })
})

test('a drained gateway is distinguished from one that was cut off', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 1)
  expect((await run(runs.root, 'show', 'gateway')).stdout).toContain('gateway · unfinished ·')
  {
    await using store = await RunStore.open({ folder: join(runs.root, 'gateway') })
    await store.finish('unfinished', { end: 'drained' })
  }
  expect((await run(runs.root, 'list')).stdout).toMatch(/gateway +drained +gateway/)
  expect((await run(runs.root, 'show', 'gateway')).stdout).toContain('gateway · drained ·')
  for (const command of [['list'], ['show', 'gateway']]) {
    const document = JSON.parse((await run(runs.root, ...command, '--json')).stdout) as object
    expect(document).toMatchObject({ state: 'unfinished', end: 'drained' })
  }
})

test('the tenant of each session is shown if there are several', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 2, { tenants: ['default', 'acme'] })
  const { stdout } = await run(runs.root, 'show', 'gateway')
  expect(stdout).toMatch(/ses-1 +acme +grp-1 +sums +open/)
  expect(stdout).toMatch(/ses-0 +default +grp-1 +sums +ended/)
})

test('show lists the newest sessions of a gateway run', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 3)
  const all = await run(runs.root, 'show', 'gateway')
  expect({ code: all.code, stderr: all.stderr }).toEqual({ code: 0, stderr: '' })
  expect(all.stdout).toContain('3 sessions: 2 open, 1 ended')
  expect(all.stdout).toMatch(/ses-2 +grp-1 +sums +open +0 +0 +–\n/)
  expect(all.stdout).toMatch(/ses-0 +grp-1 +sums +ended +2 +6 +1\S*\n/)
  expect(all.stdout).toContain('millrace show gateway ses-2')
  const two = await run(runs.root, 'show', 'gateway', '--limit', '2')
  expect(two.stdout).not.toContain('ses-0')
  expect(two.stdout).toContain('1 older ones; --limit shows more')
  const document = JSON.parse((await run(runs.root, 'show', 'gateway', '--json')).stdout) as Record<string, unknown>
  expect(document).toMatchObject({
    run: 'gateway',
    sessions: { open: 2, ended: 1 },
    newest: [{ id: 'ses-2', tokens: null }, { id: 'ses-1' }, { id: 'ses-0', interactions: 2, tokens: 'some' }],
  })
})

test.each([
  ['is no alarm where they were not asked for', {}, []],
  ['is one where they were', { tokensMissing: true }, ['tokens_missing']],
] as const)('a session without token ids %s', async (_name, more, alarms) => {
  await using runs = await temporaryRuns()
  const nodes = [node(0, null, 'Hello?'), node(1, 0, 'Hello.', { call: { ...call('reply-a'), ...more } })]
  writeGatewayRun(runs.root, 1, { nodes })
  const table = await run(runs.root, 'show', 'gateway')
  const session = await run(runs.root, 'show', 'gateway', 'ses-0')
  const document: unknown = JSON.parse((await run(runs.root, 'show', 'gateway', 'ses-0', '--json')).stdout)
  expect(document).toMatchObject({ tokens: 'none', alarms })
  const shown = alarms.join(', ')
  expect(/ses-0 +grp-1 +sums +ended +1 +2 +1\S* *(.*)\n/.exec(table.stdout)?.[1]).toBe(shown)
  expect(/alarms +(.*)\n/.exec(session.stdout)?.[1]).toBe(shown === '' ? undefined : shown)
  expect(session.stdout).toContain('1 complete one · no token ids')
})

test('a session is shown branch by branch, with lost replies marked', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 1)
  const { stdout } = await run(runs.root, 'show', 'gateway', 'ses-0')
  const places = [
    'What is 2+2?',
    'discarded: client_gone',
    'half an ans',
    '── branch 2 of 3, continues from #0 ──',
    'It is 4.',
    '── branch 3 of 3, new conversation ──',
    'Be a pirate.',
    'Arr!',
    '2 complete ones, 1 discarded · 3 branches · not all with token ids',
  ].map((text) => stdout.indexOf(text))
  expect(places).not.toContain(-1)
  expect(places).toEqual(places.toSorted((a, b) => a - b))
  expect(stdout).toMatch(/#3 reply-a {2}reward 0\.25/)
  const document = JSON.parse((await run(runs.root, 'show', 'gateway', 'ses-0', '--json')).stdout) as {
    messages: unknown[]
  }
  expect(document).toMatchObject({ id: 'ses-0', state: 'ended', reward: 1, discarded: 1 })
  expect(document.messages).toMatchObject([{ seq: 0 }, { discarded: { why: 'client_gone' } }, {}, { reward: 0.25 }, {}])
})

test('a session shows the fields left out of its requests, each name once', async () => {
  await using runs = await temporaryRuns()
  const reply = { ...call('reply-a'), dropped: ['tools[0].type web_search', 'metadata'] }
  const nodes = [node(0, null, 'Hello?'), node(1, 0, 'Hello.', { call: reply }), node(2, 0, 'Hi.', { call: reply })]
  writeGatewayRun(runs.root, 1, { nodes })
  const { stdout } = await run(runs.root, 'show', 'gateway', 'ses-0')
  expect(stdout).toMatch(/left out +tools\[0\]\.type web_search, metadata\n/)
})

test('an unknown session id is refused with a next step', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 2)
  expect(await run(runs.root, 'show', 'gateway', '0-0')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('run gateway has no session 0-0; the newest is ses-1'),
  })
  expect(await run(runs.root, 'show', 'gateway', 'grp-1')).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(
      /run gateway has no session grp-1; this is the id of a group, whose newest session is ses-1; .*millrace export gateway --group grp-1/,
    ),
  })
  expect(await run(runs.root, 'show', 'gateway', '--outcome', 'any')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--outcome applies to rollouts'),
  })
})

test('a command for rollouts explains that the run has sessions', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 1)
  for (const args of [
    ['replay', 'gateway', '0-0'],
    ['replay', 'gateway', '--all'],
    ['fork', 'gateway', '0-0', '--turn', '1'],
    ['rescore', 'gateway'],
  ]) {
    expect(await run(runs.root, ...args)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('run gateway holds the sessions of a gateway, and no rollouts to run again'),
    })
  }
})

test('a session with a damaged record affects only its own row', async () => {
  await using runs = await temporaryRuns()
  writeGatewayRun(runs.root, 3)
  {
    using database = new DatabaseSync(join(runs.root, 'gateway', 'journal.sqlite'))
    database.exec(`UPDATE session SET data = '{' WHERE id = 'ses-1'`)
  }
  const { code, stdout } = await run(runs.root, 'show', 'gateway')
  expect(code).toBe(0)
  expect(stdout).toMatch(/^ses-1 cannot be read; why: .* show gateway ses-1$/m)
  expect(stdout).toMatch(/^ses-2 .*\nses-0 /m)
  expect((await run(runs.root, 'show', 'gateway', 'ses-1')).stderr).toContain(
    'the start record of session ses-1 cannot be read',
  )
  const { newest, unreadable } = JSON.parse((await run(runs.root, 'show', 'gateway', '--json')).stdout) as {
    newest: { id: string }[]
    unreadable: string[]
  }
  expect([newest.map(({ id }) => id), unreadable]).toEqual([['ses-2', 'ses-0'], ['ses-1']])
})
