import { expect, test } from 'vitest'
import { seededRandom } from '../../src/kit/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { saidBy, saidIn, Talk } from '../support/gateway/scripted-conversation.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import {
  emittedIn,
  emittedSample,
  recordedSample,
  samplesOf,
  type Emitted,
  type SampleRow,
} from '../support/gateway/emitted-tokens.ts'
import { apiClients, apiNames } from '../support/gateway/api-clients.ts'
import { HistoryRewritingClient, type Question } from '../support/gateway/history-rewriting-client.ts'

const kinds = [1, 2, 3, 4, 5, 6].flatMap((seed) => [
  { seed, model: 'a model' },
  { seed, model: 'a model with exact tokens' },
])

test.each(kinds)(
  '$model: each sample is recorded once, however clients rewrite their histories (seed $seed)',
  async ({ seed, model }) => {
    const isExact = model !== 'a model'
    await using simulator = await SimulatorServer.start({
      recordEmitted: 1000,
      reasoning: true,
      weightVersion: 'v0',
      imitate: 'millrace',
      tokensPerSecond: 800,
      ...(isExact && { tokens: 'lossy' }),
    })
    const backends = [{ url: simulator.url }]
    await using gateway = await TestGateway.start({
      models: [{ name: 'sim', backends, ...(isExact && { tokens: 'exact' }) }],
    })
    const session = await gateway.startSession()
    // Three APIs, and a second client of one of them, all in one session.
    const clients = [...apiNames, 'chat' as const].map((api, index) => {
      const talk = new Talk(gateway, session, apiClients[api], { system: 'Look every word up.', tools: true })
      return new HistoryRewritingClient(talk, simulator, seededRandom(seed * 100 + index), !isExact)
    })
    await Promise.all(clients.map((client) => client.run()))
    await expect.poll(() => gateway.server.gateway.status().running).toBe(0)
    await expect.poll(() => simulator.stats.inFlight).toBe(0)

    const rows = await samplesOf(gateway, session.id)
    const questions = clients.flatMap((client) => client.questions)
    expectEachOnce(rows, await emittedIn(simulator, session.id))
    expectAnswers(rows, questions)
    expectParents(rows)
    // Something of everything happened. Replies of exact tokens come whole, so none is lost in the middle.
    if (!isExact) expect(rows.filter(({ discarded }) => discarded !== null).length).toBeGreaterThan(0)
    expect(questions.some(({ received }) => received.length > 1)).toBe(true)
  },
)

/** The samples on record are those that left the simulator, and the lost ones are the beginnings of theirs. */
function expectEachOnce(rows: readonly SampleRow[], emitted: readonly Emitted[]): void {
  const left = new Set(emitted)
  for (const row of rows.filter(({ discarded }) => discarded === null)) {
    const recorded = JSON.stringify(recordedSample(row))
    const found = [...left].find((reply) => JSON.stringify(emittedSample(reply)) === recorded)
    expect(found, `${row.interaction} was not emitted, or is there twice`).toBeDefined()
    if (found) left.delete(found)
  }
  for (const row of rows.filter(({ discarded }) => discarded !== null)) {
    expect(row.discarded).toBe('client_gone')
    const found = [...left].find((reply) => isBeginning(row, reply))
    expect(found, `${row.interaction} is the beginning of nothing that was emitted`).toBeDefined()
    if (found) left.delete(found)
  }
  expect([...left].map(({ replyId, finish, ids }) => ({ replyId, finish, tokens: ids.length }))).toEqual([])
}

function isBeginning(row: SampleRow, { promptIds, ids, logprobs, versions }: Emitted): boolean {
  const count = row.ids?.length ?? 0
  const shared = emittedSample({
    promptIds,
    ids: ids.slice(0, count),
    logprobs: logprobs.slice(0, count),
    versions: versions.filter(({ from }) => from < count),
    finish: null,
    session: '',
    replyId: '',
    api: 'chat',
  })
  return JSON.stringify(shared) === JSON.stringify({ ...recordedSample(row), experts: null })
}

/** Every client got its answers, each on record with the conversation that led to it. */
function expectAnswers(rows: readonly SampleRow[], questions: readonly Question[]): void {
  const byId = new Map(rows.map((row) => [row.interaction, row]))
  const unseen = rows.map((row) => row.interaction)
  for (const { said, received } of questions) {
    const [first, ...again] = received
    if (!first) continue
    expect(again.map(({ id, text }) => ({ id, text }))).toEqual(again.map(() => ({ id: first.id, text: first.text })))
    const row = byId.get(first.id)
    expect(row && conversationOf(row, byId)).toEqual([...said, saidBy(first)])
    expect(unseen.splice(unseen.indexOf(first.id), 1)).toEqual([first.id])
  }
  // The others are those whose client left: lost, or complete all the same.
  const abandoned = questions.flatMap(({ said, received }) => (received.length === 0 ? [said.join('\n')] : []))
  const asked = unseen.map((id) => {
    const row = byId.get(id)
    return row ? conversationOf(row, byId).slice(0, -1).join('\n') : ''
  })
  expect(asked.toSorted()).toEqual(abandoned.toSorted())
}

/** Each follows the latest reply that its prompt goes on from. */
function expectParents(rows: readonly SampleRow[]): void {
  const byId = new Map(rows.map((row) => [row.interaction, row]))
  const complete = rows.filter(({ discarded }) => discarded === null)
  for (const row of rows) {
    const whole = conversationOf(row, byId)
    const longest = Math.max(
      0,
      ...complete
        .filter(({ node }) => node < row.node)
        .map((other) => conversationOf(other, byId))
        .filter((said) => said.length < whole.length && said.every((words, index) => words === whole[index]))
        .map((said) => said.length),
    )
    const parent = row.parentInteraction === null ? undefined : byId.get(row.parentInteraction)
    expect(parent ? conversationOf(parent, byId).length : 0, `the parent of ${row.interaction}`).toBe(longest)
  }
}

function conversationOf(row: SampleRow, byId: ReadonlyMap<string, SampleRow>): string[] {
  const parent = row.parentInteraction === null ? undefined : byId.get(row.parentInteraction)
  return [...(parent ? conversationOf(parent, byId) : []), ...row.messages.map(saidIn)]
}
