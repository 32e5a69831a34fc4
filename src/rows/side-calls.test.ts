import { hash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { admin, type OpenGateway } from '../../test/support/gateway/open-gateway.ts'
import { openTokenGateway, rowsOf, type Said } from '../../test/support/gateway/token-gateway.ts'
import type { Caller } from '../gateway/sessions/session-memory.ts'
import type { ExportRowsOptions } from './export-rows.ts'

const agent = { role: 'system', content: 'You fix bugs.' }
const titler = { role: 'system', content: 'Write a title of five words.' }
const tools = ['read', 'edit'].map((name) => ({ type: 'function', function: { name, parameters: {} } }))
const user = (content: string): Said => ({ role: 'user', content })

interface Asking {
  readonly turns?: number
  readonly model?: string
  readonly tools?: readonly unknown[]
}

/** Asks for so many replies in a row, and returns the whole conversation. */
async function talk(
  { open, caller }: { open: OpenGateway; caller: Caller },
  messages: readonly Said[],
  { turns = 1, model = 'm', ...more }: Asking = {},
): Promise<readonly Said[]> {
  const said = [...messages]
  for (let turn = 1; turn <= turns; turn += 1) {
    const { status, text } = await open.ask(caller, { model, messages: said, ...more })
    expect(status, text).toBe(200)
    said.push({ role: 'assistant', content: `reply ${said.length}` }, user(`And ${turn}?`))
  }
  return said
}

type Shown = [root: number, main: boolean, reward: number | null, worth: number | null]

/** Of each reply: the first message of its tree, whether that is the main one, its reward and its return. */
async function repliesOf(open: OpenGateway, options: Partial<ExportRowsOptions> = {}): Promise<Shown[]> {
  const rows = await rowsOf(open, options)
  return rows.flatMap((row) => (row.kind === 'interaction' ? [[row.tree.root, row.main, row.reward, row.return]] : []))
}

test("a title generator's reply is a side call: it does not get the session's reward, and can be left out", async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { id, caller } = await open.session()
  await talk({ open, caller }, [titler, user('Fix it.')], { model: 'n' })
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2, tools })
  await open.gateway.reward(admin, id, { reward: 1 })
  const rows = await rowsOf(open)
  const title = { root: 0, system: hash('sha256', titler.content), model: 'n', tools: [], requests: 1 }
  const fix = { root: 3, system: hash('sha256', agent.content), model: 'm', tools: ['read', 'edit'], requests: 2 }
  expect(rows.flatMap((row) => (row.kind === 'interaction' ? [row.tree] : []))).toEqual([title, fix, fix])
  expect(await repliesOf(open)).toEqual([
    [0, false, null, null],
    [3, true, null, 1],
    [3, true, 1, 1],
  ])
  expect(rows.at(-1)).toMatchObject({ rows: 3, sideRows: 1 })
  for (const format of ['jsonl', 'binary'] as const) {
    const merged = await rowsOf(open, { rows: 'merged', format })
    expect(merged).toMatchObject([
      { main: false, tree: title, reward: null },
      { main: true, tree: fix, reward: 1 },
      { kind: 'end', rows: 2, sideRows: 1 },
    ])
    const [row, end, ...more] = await rowsOf(open, { rows: 'merged', format, trees: 'main' })
    expect(row).toEqual(merged[1])
    expect([end, ...more]).toMatchObject([{ kind: 'end', rows: 1, sideRows: 0 }])
  }
})

test('the main tree can be the first tree, or all trees', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { id, caller } = await open.session()
  await talk({ open, caller }, [titler, user('Fix it.')])
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2 })
  await open.gateway.reward(admin, id, { reward: 1 })
  expect(await repliesOf(open, { mainTree: 'first' })).toEqual([
    [0, true, 1, 1],
    [3, false, null, null],
    [3, false, null, null],
  ])
  expect(await repliesOf(open, { mainTree: 'first', trees: 'main' })).toEqual([[0, true, 1, 1]])
  expect(await repliesOf(open, { mainTree: 'all' })).toEqual([
    [0, true, 1, 1],
    [3, true, null, 1],
    [3, true, 1, 1],
  ])
})

test('the longest tree has the most turns in a row; a tie goes to the most tokens', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { caller } = await open.session()
  // Side calls for every message, each of its own.
  for (const about of ['one', 'two', 'three']) await talk({ open, caller }, [titler, user(about)])
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2 })
  const other = await open.session()
  await talk({ open, caller: other.caller }, [titler, user('Fix it.')])
  await talk({ open, caller: other.caller }, [agent, user('Fix it, and here is a long file to look at.')])
  const again = await open.session()
  await talk({ open, caller: again.caller }, [user('1234')])
  await talk({ open, caller: again.caller }, [user('5678')])
  expect((await repliesOf(open)).map(([root, main]) => [root, main])).toEqual([
    [0, false],
    [0, false],
    [0, false],
    [7, true],
    [7, true],
    [0, false],
    [3, true],
    [0, true],
    [2, false],
  ])
})

test('a fork in the main tree gets the reward in every branch', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { id, caller } = await open.session()
  const said = await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2 })
  // The client drops what was said before: with the same system prompt that is a fork.
  await talk({ open, caller }, [agent, user('Summary: fix it.')])
  await talk({ open, caller }, [...said.slice(0, 3), user('Another way.')])
  await open.gateway.reward(admin, id, { reward: 1 })
  expect(await repliesOf(open, { trees: 'main' })).toEqual([
    [0, true, null, 1],
    [0, true, 1, 1],
    [0, true, 1, 1],
    [0, true, 1, 1],
  ])
})

test('a tree that begins like the main one belongs to it, as after a summary', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { id, caller } = await open.session()
  await talk({ open, caller }, [user('Fix it.')], { turns: 2, tools })
  // The same functions in another order.
  await talk({ open, caller }, [user('Summary: fix it.')], { tools: tools.toReversed() })
  await talk({ open, caller }, [user('Write a title.')])
  await talk({ open, caller }, [user('With another model.')], { tools, model: 'n' })
  await open.gateway.reward(admin, id, { reward: 1 })
  expect((await repliesOf(open)).map(([, main, , worth]) => [main, worth])).toEqual([
    [true, 1],
    [true, 1],
    [true, 1],
    [false, null],
    [false, null],
  ])
})

test('without system prompt and functions, only the longest tree is the main one', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { caller } = await open.session()
  await talk({ open, caller }, [user('Fix it.')], { turns: 2 })
  await talk({ open, caller }, [user('Write a title.')])
  expect((await repliesOf(open)).map(([root, main]) => [root, main])).toEqual([
    [0, true],
    [0, true],
    [4, false],
  ])
})

test('a reward of a single reply stays with it in any tree', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { id, caller } = await open.session()
  await talk({ open, caller }, [titler, user('Fix it.')])
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2 })
  await open.gateway.reward(admin, id, { reward: 1 })
  await open.gateway.reward(admin, id, { node: 2, reward: 0.25 })
  await open.gateway.reward(admin, id, { node: 5, reward: 0.5 })
  expect(await repliesOf(open, { discount: 0.5 })).toEqual([
    [0, false, 0.25, 0.25],
    [3, true, 0.5, 1],
    [3, true, 1, 1],
  ])
})

test('side calls without tokens do not prevent training rows of the main tree', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { caller } = await open.session()
  await talk({ open, caller }, [titler, user('Fix it.')], { model: 'plain' })
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2 })
  await expect(rowsOf(open, { rows: 'merged' })).rejects.toMatchObject({ code: 'usage', data: { node: 2 } })
  expect(await rowsOf(open, { rows: 'merged', trees: 'main' })).toMatchObject([
    { kind: 'merged', main: true },
    { kind: 'end', rows: 1, withoutTokens: 0 },
  ])
  await expect(rowsOf(open, { rows: 'merged', trees: 'main', mainTree: 'first' })).rejects.toMatchObject({
    data: { node: 2 },
  })
})

test('a session whose main tree cannot be trained is empty, beside the rows of its side calls', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { id, caller } = await open.session()
  await talk({ open, caller }, [titler, user('Fix it.')])
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2, model: 'plain' })
  await open.gateway.reward(admin, id, { reward: 0 })
  expect(await rowsOf(open, { rows: 'merged', skipWithoutTokens: true })).toMatchObject([
    { kind: 'merged', main: false, reward: null },
    { kind: 'empty', session: id, reward: 0 },
    { kind: 'end', rows: 1, sideRows: 1, emptySessions: 1, withoutTokens: 2 },
  ])
})

test('a lost reply belongs to its own tree', async () => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { caller } = await open.session()
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 2 })
  const { client, done } = open.send(caller, { model: 'm', messages: [titler, user('Fix it.')] })
  await setImmediate()
  client.leave()
  await done
  const [, , ...shown] = await repliesOf(open, { include: 'discarded' })
  expect(shown).toEqual([[5, false, null, null]])
  expect(await repliesOf(open, { include: 'discarded', trees: 'main' })).toHaveLength(2)
})

test.each(['interactions', 'merged'] as const)('drifted turns are counted in the last row of %s', async (rows) => {
  await using gateway = await openTokenGateway()
  const { open } = gateway
  const { caller } = await open.session()
  await talk({ open, caller }, [agent, user('Fix it.')], { turns: 4 })
  expect((await rowsOf(open, { rows })).at(-1)).toMatchObject({ laterTurns: 3, driftedTurns: 0 })
  const drifting = await open.session()
  await talk({ open, caller: drifting.caller }, [agent, user('Fix it.')], { turns: 4, model: 'drifting' })
  const found = await rowsOf(open, { rows })
  expect(found.at(-1)).toMatchObject({ laterTurns: 6, driftedTurns: 3 })
  if (rows === 'merged') expect(found.filter((row) => 'splitAt' in row && row.splitAt)).toHaveLength(3)
})
