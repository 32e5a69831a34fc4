import { text } from 'node:stream/consumers'
import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { exportRows } from '../../src/rows/index.ts'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import type { Message } from '../../src/schema/index.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { type Chance, fuzz } from '../support/gateway/fuzz/fuzz.ts'
import { RandomAgent } from '../support/gateway/fuzz/random-agent.ts'
import { saidBy, saidIn } from '../support/gateway/scripted-conversation.ts'
import { terseServer } from '../support/gateway/fuzz/terse-server.ts'
import { apiNames } from '../support/gateway/api-clients.ts'

const sessions = 20
const stepsPerAgent = 6
const reward = 0.5

interface Row {
  readonly interaction: string
  readonly node: number
  readonly parentNode: number | null
  readonly discarded: string | null
  readonly main: boolean
  readonly return: number | null
  readonly reward: number | null
  readonly messages: readonly Message[]
  /** Null of one that was lost before any came. */
  readonly ids: readonly number[] | null
  readonly logprobs: readonly number[] | null
}

interface Merged {
  readonly discarded: string | null
  readonly mask: readonly number[]
  readonly logprobs: readonly number[]
}

async function rowsOf<Shape>(
  { store }: OpenGateway,
  session: string,
  rows: 'interactions' | 'merged',
): Promise<Shape[]> {
  await store.journal.durable()
  const options = { session, rows, format: 'jsonl', include: 'discarded' } as const
  const lines = await text(Readable.from(exportRows(store.reader, options), { objectMode: false }))
  const parsed = lines
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Shape & { readonly kind: string })
  return parsed.filter(({ kind }) => kind === 'interaction' || kind === 'merged')
}

/** The disk is slow by some turns of the loop, so that clients leave while it is waited for. */
function slowDisk({ store: { journal } }: OpenGateway, chance: Chance): void {
  const durable = journal.durable.bind(journal)
  journal.durable = () => {
    const pending = durable()
    return pending?.then(async () => {
      for (let turns = chance.below(10); turns > 0; turns -= 1) await nextTurn()
    })
  }
}

test(
  'every reply to random agents in one session is recorded once, at the right node',
  { timeout: 120_000 },
  async () => {
    const seen = { replies: 0, lost: 0, wholeLost: 0, twins: 0 }
    await fuzz('random-agents', { count: sessions }, async (chance) => {
      using folder = temporaryFolder()
      await using server = await terseServer(chance)
      const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
      // Some forget what they do not use, and read it back each time.
      const bounds = chance.is(0.4) ? { maxRemembered: 0 } : {}
      let open = await OpenGateway.open({ models, bounds, folder: folder.path })
      try {
        slowDisk(open, chance)
        const { id, caller } = await open.session()
        const gateway = (): OpenGateway => open
        const asked = (): number => server.requests.length
        // Two of each API; those of one pair begin with the same system prompt.
        const agents = [...apiNames, ...apiNames].map(
          (api, index) => new RandomAgent({ name: `${'AB'[index % 2]}${index}`, api, caller, chance, asked, gateway }),
        )
        for (let round = 0; round < 2; round += 1) {
          await Promise.all(
            agents.map(async (agent) => {
              for (let step = 0; step < stepsPerAgent / 2; step += 1) await agent.step()
            }),
          )
          if (!chance.is(0.5)) continue
          await open[Symbol.asyncDispose]()
          open = await OpenGateway.open({ models, bounds, folder: folder.path })
          slowDisk(open, chance)
        }
        await open.gateway.reward(admin, id, { reward })
        const rows = await rowsOf<Row>(open, id, 'interactions')
        const complete = rows.filter(({ discarded }) => discarded === null)
        expectReceived(complete, agents)
        expectReturns(complete)
        expectTrained(await rowsOf<Merged>(open, id, 'merged'), complete)
        const sampled = rows.flatMap(({ logprobs }) => logprobs?.[0] ?? [])
        expect(new Set(sampled).size).toBe(sampled.length)
        const view = await open.gateway.endSession(admin, id)
        expect(view).toMatchObject({ interactions: complete.length, discarded: rows.length - complete.length })
        expect(await open.gateway.session(admin, id)).toEqual(view)
        expect(open.store.reader.integrity()).toEqual([])
        seen.replies += complete.length
        seen.lost += rows.length - complete.length
        seen.wholeLost += rows.filter(({ discarded, ids }) => discarded === 'client_gone' && ids?.at(-1) === 1).length
        seen.twins += complete.length - new Set(complete.map((row) => conversationOf(row, rows).join('\n'))).size
      } finally {
        await open[Symbol.asyncDispose]()
      }
    })
    process.stdout.write(`${JSON.stringify(seen)}\n`)
    if (process.env['FUZZ_CASE'] === undefined)
      for (const count of Object.values(seen)) expect(count).toBeGreaterThan(0)
  },
)

/** Complete on record is what an agent has got to its end, or has gone on from, each with what led to it; and nothing else. */
function expectReceived(complete: readonly Row[], agents: readonly RandomAgent[]): void {
  const byId = new Map(complete.map((row) => [row.interaction, row]))
  expect(byId.size).toBe(complete.length)
  const received = new Set<string>()
  for (const { received: reply, said } of agents.flatMap(({ replies }) => replies)) {
    received.add(reply.id)
    const row = byId.get(reply.id)
    expect(row && conversationOf(row, complete), reply.id).toEqual([...said, saidBy(reply)])
  }
  const overheard = new Set(agents.flatMap((agent) => [...agent.overheard]))
  expect(
    complete.map(({ interaction }) => interaction).filter((id) => !received.has(id) && !overheard.has(id)),
  ).toEqual([])
}

/**
 * The session's reward reaches every reply of the main tree from the last ones of its branches, undiminished: it is the mean of
 * equal ones.
 */
function expectReturns(complete: readonly Row[]): void {
  const parents = new Set(complete.map(({ parentNode }) => parentNode))
  expect(complete.some(({ main }) => main)).toBe(complete.length > 0)
  for (const row of complete) {
    const worth = row.main ? reward : null
    expect(row.return).toBe(worth)
    expect(row.reward).toBe(parents.has(row.node) ? null : worth)
  }
}

/** Every sample's tokens are trained once, and of lost ones none is. A sample is known by its log-probability. */
function expectTrained(merged: readonly Merged[], complete: readonly Row[]): void {
  const trained = new Map<number, number>()
  for (const { mask, logprobs } of merged) {
    mask.forEach((isTrained, at) => {
      const sample = logprobs[at] ?? 0
      if (isTrained === 1) trained.set(sample, (trained.get(sample) ?? 0) + 1)
    })
  }
  const expected = new Map(complete.map(({ logprobs, ids }) => [logprobs?.[0] ?? 0, ids?.length ?? 0]))
  expect(trained).toEqual(expected)
}

function conversationOf(row: Row, rows: readonly Row[]): string[] {
  const parent = rows.find(({ node }) => node === row.parentNode)
  return [...(parent ? conversationOf(parent, rows) : []), ...row.messages.map(saidIn)]
}
