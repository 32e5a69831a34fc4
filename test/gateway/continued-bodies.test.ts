/**
 * A session does not read again what it has read. Whatever a client does, it must be recorded and sent on as if it did: the same
 * requests, once written alike each time and once never twice in the same spelling, leave the same record.
 */
import { expect, test, vi } from 'vitest'
import { LastBody } from '../../src/gateway/sessions/last-body.ts'
import { OpenGateway } from '../support/gateway/open-gateway.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { seededRandom } from '../../src/kit/index.ts'
import type { MessageNode } from '../../src/schema/index.ts'

interface ChatMessage {
  readonly role: string
  readonly content: string
}

interface Step {
  readonly messages: readonly ChatMessage[]
  readonly fields: Readonly<Record<string, unknown>>
  readonly retryCount: number
  /** A retry has the turn of what it repeats. */
  readonly turn: number
}

/** Long enough to be worth comparing. */
const system: ChatMessage = { role: 'system', content: 'Be brief. '.repeat(500) }

/** Two agents in one session, who go on, rewrite what was said, begin anew, ask again, and ask in other ways. */
function stepsOf(seed: number): Step[] {
  const random = seededRandom(seed)
  const conversations: ChatMessage[][] = [[system], [{ ...system, content: `${system.content}You help.` }]]
  const steps: Step[] = []
  for (let turn = 0; turn < 24; turn += 1) {
    const messages = conversations[random() < 0.85 ? 0 : 1] as ChatMessage[]
    const chance = random()
    if (chance < 0.1) messages.splice(1 + Math.floor(random() * messages.length))
    messages.push({ role: 'user', content: `question ${turn} "é" \\ {` })
    const fields = { ...(random() < 0.2 && { logprobs: false }), ...(random() < 0.2 && { seed: turn }) }
    const step = { messages: [...messages], fields, retryCount: 0, turn }
    steps.push(step)
    if (random() < 0.1) steps.push({ ...step, retryCount: 1 })
    messages.push({ role: 'assistant', content: replyTo(messages) })
  }
  return steps
}

function replyTo(messages: readonly ChatMessage[]): string {
  return `reply ${messages.length} to ${messages.at(-1)?.content}`
}

async function recordOf(steps: readonly Step[], write: (body: object, turn: number) => string) {
  await using server = await ScriptedServer.start((response, { body }) => {
    const { messages } = JSON.parse(body) as { messages: ChatMessage[] }
    sendJson(response, chatReply(replyTo(messages)))
  })
  const models = [{ name: 'm', upstreamName: 'upstream', maxTries: 1, backends: [{ url: server.url }] }]
  await using open = await OpenGateway.open({ models })
  const { id, caller } = await open.session()
  const replies: unknown[] = []
  for (const { messages, fields, retryCount, turn } of steps) {
    const client = await open.ask(caller, write({ model: 'm', messages, ...fields }, turn), { retryCount })
    // Not when it was made, which a repeated one says anew.
    replies.push(client.document['choices'])
  }
  const sent = server.requests.filter(({ method }) => method === 'POST').map(({ body }) => JSON.parse(body) as unknown)
  return { sent, replies, nodes: (await open.nodes(id)).map(essence) }
}

function essence({ seq, parent, hash, message, sampled }: MessageNode) {
  return { seq, parent, hash, message, sampled }
}

test.each([1, 2, 3, 4, 5, 6])('messages are recorded equally, however the body is read (%i)', async (seed) => {
  const steps = stepsOf(seed)
  const continuing = vi.spyOn(LastBody.prototype, 'continuedBy')
  const alike = await recordOf(steps, (body) => JSON.stringify(body))
  expect(continuing.mock.results.filter(({ value }) => value !== undefined).length).toBeGreaterThan(2)
  continuing.mockRestore()
  // An indentation that no body of another turn has.
  const anew = await recordOf(steps, (body, turn) => ' '.repeat(turn) + JSON.stringify(body, null, 1 + (turn % 2)))
  expect(alike.sent).toEqual(anew.sent)
  expect(alike.replies).toEqual(anew.replies)
  expect(alike.nodes).toEqual(anew.nodes)
  expect(alike.nodes.length).toBeGreaterThan(30)
})

test('the new part of a body is held to the JSON depth limit, at any position', async () => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('yes')))
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  await using open = await OpenGateway.open({ models })
  const { caller } = await open.session()
  const first = [system, { role: 'user', content: 'one' }]
  const second = [...first, { role: 'assistant', content: 'yes' }]
  const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels)) as unknown
  const maxJsonDepth = 8
  const status = async (messages: readonly object[], more: object = {}): Promise<number | undefined> =>
    (await open.ask(caller, { model: 'm', messages, ...more }, { maxJsonDepth })).status
  expect(await status(first)).toBe(200)
  // Inside of a message are three levels, and after the messages one.
  for (const [levels, expected] of [
    [5, 200],
    [6, 400],
  ] as const) {
    expect(await status([...second, { role: 'user', content: 'two', made_up: nested(levels) }])).toBe(expected)
    expect(await status(second, { made_up: nested(levels + 2) })).toBe(expected)
  }
})
