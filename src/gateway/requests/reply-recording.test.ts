import { afterAll, beforeAll, expect, test } from 'vitest'
import { AttemptRecorder } from '../../store/index.ts'
import { chatReply, ScriptedServer, sendJson } from '../../../test/support/inference/scripted-server.ts'
import type { CallRecord, TokenRecord } from '../../schema/index.ts'
import { completeTokens } from '../../rows/index.ts'
import { admin, OpenGateway } from '../../../test/support/gateway/open-gateway.ts'
import { exportRows } from '../../rows/index.ts'
import { storedView } from '../sessions/session-view.ts'

const ids = (length: number): Int32Array => new Int32Array(length).fill(7)
const logprobs = (length: number): Float32Array => new Float32Array(length).fill(-1)

const cases: {
  readonly name: string
  readonly tokens?: TokenRecord
  readonly output: number
  readonly isComplete: boolean
}[] = [
  { name: 'all of it', tokens: { promptIds: ids(3), ids: ids(2), logprobs: logprobs(2) }, output: 2, isComplete: true },
  {
    name: 'nothing was sampled',
    tokens: { promptIds: ids(3), ids: ids(0), logprobs: logprobs(0) },
    output: 0,
    isComplete: true,
  },
  { name: 'nothing', output: 2, isComplete: false },
  { name: 'no prompt', tokens: { ids: ids(2), logprobs: logprobs(2) }, output: 2, isComplete: false },
  {
    name: 'no log-probabilities',
    tokens: { promptIds: ids(3), ids: ids(2), logprobs: logprobs(0) },
    output: 2,
    isComplete: false,
  },
  {
    name: 'too few of them',
    tokens: { promptIds: ids(3), ids: ids(2), logprobs: logprobs(1) },
    output: 2,
    isComplete: false,
  },
  {
    name: 'too few ids',
    tokens: { promptIds: ids(3), ids: ids(2), logprobs: logprobs(2) },
    output: 3,
    isComplete: false,
  },
  { name: 'no ids', tokens: { promptIds: ids(3), ids: ids(0), logprobs: logprobs(0) }, output: 2, isComplete: false },
]

function callOf(model: string, output: number, tokensMissing: boolean): CallRecord {
  const usage = { calls: 1, input: 3, cachedInput: 0, output, reasoning: 0 }
  const call = { model, backend: 'b', finishReason: 'stop', usage, cost: null, tries: 1, ms: 1, waitMs: 0 } as const
  return { ...call, replyId: 'r', ...(tokensMissing && { tokensMissing }) }
}

function open(url = 'http://nobody.invalid'): Promise<OpenGateway> {
  const names = ['captured', 'plain']
  return OpenGateway.open({
    models: names.map((name) => ({ name, backends: [{ url }] })),
    facts: { plain: { capturesTokens: false } },
    // So that everything is read back.
    bounds: { maxRemembered: 0 },
  })
}

/** For the tests that record by themselves, each in sessions of its own. */
let gateway: OpenGateway
beforeAll(async () => void (gateway = await open()))
afterAll(() => gateway[Symbol.asyncDispose]())

/** Records replies in a session that nobody has in memory. */
async function record(
  session: string,
  replies: readonly { readonly call: CallRecord; readonly tokens?: TokenRecord }[],
): Promise<void> {
  // One that was never looked at is known to be empty.
  await gateway.gateway.session(admin, session)
  const recorder = new AttemptRecorder(gateway.store.journal, session, 0)
  for (const [seq, { call, tokens }] of replies.entries()) {
    const message = { role: 'assistant', content: `reply ${seq}` } as const
    const node = {
      seq,
      parent: null,
      hash: String(seq),
      message,
      sampled: true,
      at: 1,
      call,
      ...(tokens && { tokens }),
    }
    recorder.node(node, JSON.stringify(message))
  }
  await gateway.store.journal.durable()
}

test.each(cases)('store, alarm and export agree: $name', async ({ tokens, output, isComplete }) => {
  const { id } = await gateway.session()
  const call = callOf('captured', output, !isComplete)
  await record(id, [{ call, ...(tokens && { tokens }) }])
  const { sessions } = gateway.store.reader
  expect(completeTokens({ ...(tokens && { tokens }) }, call.usage) !== undefined).toBe(isComplete)
  expect(sessions.bareNode(id, 0)?.lacksTokens).toBe(!isComplete)
  expect(sessions.firstWithoutTokens(id)).toBe(isComplete ? undefined : 0)
  expect((await gateway.gateway.session(admin, id)).alarms).toEqual(isComplete ? [] : ['tokens_missing'])
  const merged = Array.fromAsync(exportRows(gateway.store.reader, { session: id, rows: 'merged', format: 'jsonl' }))
  if (isComplete) await merged
  else await expect(merged).rejects.toMatchObject({ code: expect.any(String) as string })
})

test('an alarm depends on the configuration when the reply was recorded', async () => {
  const { id } = await gateway.session()
  await record(id, [{ call: callOf('captured', 2, false) }])
  expect((await gateway.gateway.session(admin, id)).alarms).toEqual([])
  const other = await gateway.session()
  await record(other.id, [{ call: callOf('plain', 2, true) }, { call: callOf('plain', 2, false) }])
  expect((await gateway.gateway.session(admin, other.id)).alarms).toEqual(['tokens_missing'])
})

test.each([
  ['captured', ['tokens_missing']],
  ['plain', []],
])('a %s reply without tokens raises the alarms %j, live and when read back', async (model, alarms) => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('Hello')))
  await using asking = await open(server.url)
  const { id, caller } = await asking.session()
  await asking.ask(caller, { model, messages: [{ role: 'user', content: 'hi' }] })
  expect((await asking.gateway.session(admin, id)).alarms).toEqual(alarms)
  const { reader } = asking.store
  const stored = reader.sessions.session(id)
  expect(stored && storedView(reader.sessions, stored).alarms).toEqual(alarms)
})
