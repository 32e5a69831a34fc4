import { join } from 'node:path'
import { defineEnvironment, evaluate, exportRows, RunReader, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { Agent, request } from 'undici'
import { expect, test } from 'vitest'
import { RolloutServer, RolloutService } from '../../src/serve/index.ts'
import { readBinaryRows, readJsonRows, type ReadRow } from '../support/gateway/read-rows.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

const add = {
  parameters: z.object({ a: z.number(), b: z.number() }),
  run: ({ a, b }: { a: number; b: number }) => a + b,
}

/** Two turns with a tool between them, and a child of one turn. The last task fails: its agent throws. */
const environment = defineEnvironment({
  name: 'sums',
  task: z.object({ a: z.number(), b: z.number() }),
  tasks: () => [
    { a: 1, b: 2 },
    { a: 3, b: 4 },
    { a: 5, b: 0 },
  ],
  prompt: ({ task }) => `What is ${task.a} + ${task.b}?`,
  tools: { add },
  update: async ({ task, child, messages }) => {
    if (messages.length > 3) return { end: true }
    if (task.b === 0) throw new Error('no zeros')
    await child({ prompt: `Check ${task.a} + ${task.b}.` })
    return undefined
  },
  reward: ({ task, answer }) => answer === String(task.a + task.b) && task.a,
})

const tokensOf = (text: string): number[] => Array.from(text, (character) => character.codePointAt(0) ?? 0)

interface Asked {
  readonly messages: readonly {
    readonly role: string
    readonly content: string | null
    readonly tool_calls?: unknown
  }[]
}

/** A server of Chat with a token for each character of what it is sent. It calls the tool, and then repeats its result. */
async function scriptedModel(): Promise<ScriptedServer> {
  return await ScriptedServer.start((response, { body, path }) => {
    if (!path.endsWith('/chat/completions')) return response.writeHead(404).end()
    const { messages } = JSON.parse(body) as Asked
    const last = messages.at(-1)
    const numbers = last?.content?.match(/\d+/g)?.map(Number) ?? []
    const call = {
      id: 'c1',
      type: 'function',
      function: { name: 'add', arguments: `{"a":${numbers[0]},"b":${numbers[1]}}` },
    }
    const isCall = last?.role === 'user' && last.content?.startsWith('What')
    const message = isCall
      ? { role: 'assistant', content: null, tool_calls: [call] }
      : { role: 'assistant', content: last?.role === 'tool' ? last.content : 'yes' }
    const prompt = tokensOf(messages.map((each) => `<${each.role}>${written(each)}`).join('') + '<assistant>')
    const ids = tokensOf(written(message))
    const content = ids.map((id) => ({ token: String.fromCodePoint(id), logprob: -id / 64, bytes: null }))
    const choice = {
      index: 0,
      message,
      finish_reason: isCall ? 'tool_calls' : 'stop',
      token_ids: ids,
      logprobs: { content },
    }
    const usage = { prompt_tokens: prompt.length, completion_tokens: ids.length, total_tokens: 0 }
    const metadata = { weight_version: `v${messages.length}` }
    return sendJson(response, chatReply('', { choices: [choice], usage, prompt_token_ids: prompt, metadata }))
  })
}

function written(message: { readonly content: string | null; readonly tool_calls?: unknown }): string {
  const { tool_calls: calls } = message
  return (message.content ?? '') + (calls ? JSON.stringify(calls) : '')
}

/** The parts of a row that are the same wherever its conversation took place: names and components of rewards are not. */
function conversationIn(row: ReadRow): Record<string, unknown> {
  const { session, parent, group, tenant, task, sample, rewards, advantage, samples, ...rest } = row
  expect([session, parent, group, tenant, task, sample, rewards, advantage]).not.toContain(undefined)
  const places = (samples as readonly Record<string, unknown>[] | undefined)?.map(({ interaction, ...place }) => {
    expect(interaction).toBeTypeOf('string')
    return place
  })
  return { ...rest, samples: places }
}

const isRow = ({ kind }: ReadRow): boolean => kind === 'merged' || kind === 'empty'

test('the same conversation gives the same rows in an evaluation, in a server and in a session of the gateway', async () => {
  await using runs = await temporaryRuns()
  await using model = await scriptedModel()
  const policy = { name: 'policy', backends: [{ url: model.url }] }
  const common = { environment, model: policy, captureTokens: true, preflight: false, attempts: 2, seed: 1 }

  const run = evaluate({ ...common, run: { root: runs.root, name: 'evaluated' } })
  for await (const _ of run);
  using reader = RunReader.open(join(runs.root, 'evaluated'))
  const options = { rows: 'merged', format: 'binary', advantage: 'mean', include: 'discarded' } as const
  const evaluated = readBinaryRows(Buffer.concat(await Array.fromAsync(exportRows(reader, options))))
  const lines = Buffer.concat(await Array.fromAsync(exportRows(reader, { ...options, format: 'jsonl' })))
  expect(readJsonRows(lines).map((row) => row.kind)).toEqual(evaluated.map((row) => row.kind))

  // Children follow their rollout, and the failed rollouts have no reward and train nothing.
  const rows = evaluated.filter(isRow)
  expect(rows.map(({ session, parent }) => parent ?? session)).toEqual([
    '0-0',
    '0-0',
    '0-1',
    '0-1',
    '1-0',
    '1-0',
    '1-1',
    '1-1',
    '2-0',
    '2-0',
    '2-1',
    '2-1',
  ])
  const failed = rows.filter(({ group }) => group === '2')
  expect(failed.map(({ kind, outcome, discarded = null }) => [kind, outcome, discarded])).toEqual([
    ['empty', 'agent_error', null],
    ['merged', 'agent_error', 'unscored'],
    ['empty', 'agent_error', null],
    ['merged', 'agent_error', 'unscored'],
  ])
  for (const { reward, advantage, mask } of failed) {
    expect([reward, advantage]).toEqual([null, null])
    expect(mask ?? new Uint8Array()).not.toContain(1)
  }
  const children = rows.filter(({ parent }) => parent !== null)
  expect(children).toHaveLength(4)
  for (const child of children) expect(child).toMatchObject({ reward: null, advantage: null, outcome: 'completed' })

  await using served = await RolloutService.open({ ...common, run: { root: runs.root, name: 'served' } })
  await using server = await RolloutServer.open({ service: served, port: 0 })
  await using ends = new AsyncDisposableStack()
  const agent = ends.adopt(new Agent(), (each) => each.destroy())
  const tasks = [
    { a: 1, b: 2 },
    { a: 3, b: 4 },
  ]
  const body = JSON.stringify({ tasks, include: 'rows', advantage: 'mean' })
  const headers = { 'content-type': 'application/json' }
  const reply = await request(`${server.url}/v1/rollouts`, { method: 'POST', dispatcher: agent, headers, body })
  expect(reply.headers['content-type']).toBe('application/vnd.millrace.rows')
  const streamed = readBinaryRows(await reply.body.bytes())
  const byName = (one: ReadRow, other: ReadRow): number =>
    String(one['session']).localeCompare(String(other['session']))
  expect(streamed.filter(isRow).toSorted(byName)).toEqual(rows.filter(({ group }) => group !== '2').toSorted(byName))
  const groups = streamed
    .filter(({ kind }) => kind === 'group')
    .toSorted((one, other) => Number(one['taskIndex']) - Number(other['taskIndex']))
  expect(groups).toEqual(
    ['0', '1'].map((group) => {
      const taskIndex = Number(group)
      return {
        kind: 'group',
        group,
        task: group,
        taskIndex,
        rollouts: 2,
        scored: 2,
        outcomes: { completed: 2 },
        rows: 4,
      }
    }),
  )
  expect(streamed.at(-1)).toMatchObject({ kind: 'end', sessions: 8, rows: 8, damagedSessions: 0 })

  // An agent of somebody else asks the same through the gateway.
  await using gateway = await TestGateway.start({ models: [policy] })
  const sessions = model.requests.filter(({ path }) => path.endsWith('/chat/completions')).map((each) => each.body)
  for (const group of ['0', '1']) {
    const row = rows.find((each) => each['session'] === `${group}-0`)
    const { a, b } = tasks[Number(group)] ?? { a: 0, b: 0 }
    const session = await gateway.startSession({ groupId: group, taskId: group })
    const mine = sessions
      .filter((each) => each.includes(`What is ${a} + ${b}?`))
      .toSorted((one, other) => one.length - other.length)
    for (const each of new Set(mine.map((text) => (JSON.parse(text) as Asked).messages.length))) {
      const asked = mine.find((text) => (JSON.parse(text) as Asked).messages.length === each && hasSeedOf(text, row))
      const answer = await gateway.ask('/v1/chat/completions', { body: asked, key: session.key })
      expect(answer.status, answer.text).toBe(200)
    }
    const given = await gateway.ask(`/v1/sessions/${session.id}/rewards`, { body: { reward: row?.['reward'] } })
    const ended = await gateway.ask(`/v1/sessions/${session.id}/end`, { body: {} })
    expect([given.status, ended.status]).toEqual([200, 200])
    const exported = await gateway.open(`/v1/export?session=${session.id}&rows=merged&format=binary`, { method: 'GET' })
    const [inGateway] = readBinaryRows(await exported.body.bytes())
    expect(conversationIn(inGateway ?? { kind: 'none' })).toEqual(conversationIn(row ?? { kind: 'none' }))
  }
})

function hasSeedOf(text: string, row: ReadRow | undefined): boolean {
  const [first] = (row?.['samples'] ?? []) as readonly { readonly sampling: { readonly seed: number } }[]
  return (JSON.parse(text) as { readonly seed: number }).seed === first?.sampling.seed
}
