import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import type { MessageNode } from '../schema/index.ts'
import type { StoredSession } from '../store/index.ts'
import type { InteractionRow } from './interaction-rows.ts'
import type { VersionRun } from './captured-tokens.ts'
import type { MergedRow } from './merged-rows.ts'
import { ConversationRows, type ConversationToExport, type RowOptions } from './conversation-rows.ts'
import { completeTokens } from './captured-tokens.ts'
import { NaiveRows, versionsOf } from '../../test/support/gateway/naive-rows.ts'
import { type RandomSession, randomSession } from '../../test/support/gateway/random-session.ts'

const options: RowOptions = {
  rows: 'interactions',
  discount: 1,
  includeDiscarded: false,
  skipWithoutTokens: false,
  mainTree: 'longest',
  trees: 'all',
}
const seeds = Array.from({ length: 400 }, (_, seed) => seed)

/** As the store would give it out. */
function recorded(session: RandomSession): ConversationToExport {
  const bareNodes = session.nodes.map(({ tokens, ...bare }) => {
    const lacksTokens =
      bare.call !== undefined && completeTokens({ ...(tokens && { tokens }) }, bare.call.usage) === undefined
    return { ...bare, lacksTokens }
  })
  const { id, group, tenant, end } = session.session
  const facts: ConversationToExport['facts'] = {
    session: id,
    parent: null,
    group,
    tenant,
    task: null,
    sample: null,
    sealed: end !== undefined,
    outcome: null,
    truncated: false,
    rewards: {},
    advantage: null,
  }
  const { rewards } = session
  return { id, facts, rewards, isTrained: true, end: null, bareNodes, nodes: () => session.nodes }
}

async function interactionRows(session: RandomSession, more: Partial<RowOptions> = {}): Promise<InteractionRow[]> {
  const rows = new ConversationRows(recorded(session), { ...options, ...more })
  return (await Array.fromAsync(rows)).filter((row) => row.kind === 'interaction')
}

async function mergedRows(session: RandomSession, more: Partial<RowOptions> = {}): Promise<MergedRow[]> {
  const rows = new ConversationRows(recorded(session), { ...options, rows: 'merged', ...more })
  return (await Array.fromAsync(rows)).filter((row) => row.kind === 'merged')
}

const unrolled = (runs: readonly VersionRun[]): (string | null)[] =>
  runs.flatMap(({ version, count }) => Array.from({ length: count }, () => version))

test('interaction rows equal those of a naive reading, for sessions of every kind', async () => {
  for (const seed of seeds) {
    const session = randomSession({ seed, gaps: seed % 4 === 0 })
    const discount = [1, 0.9, 0][seed % 3] ?? 1
    const naiveRows = new NaiveRows(session, discount)
    const expected = naiveRows.interactions()
    const rows = await interactionRows(session, { discount })
    const rootOf = (node: number): number | undefined => naiveRows.rootOf(session.nodes[node] as MessageNode)
    expect(rows.map(({ tree, main }) => ({ root: tree.root, main }))).toEqual(
      expected.map(({ seq }) => ({ root: rootOf(seq), main: rootOf(seq) === naiveRows.mainRoot })),
    )
    const nameOf = new Map(rows.map((row) => [row.node, row.interaction]))
    expect(rows.map((row) => row.node)).toEqual(expected.map(({ seq }) => seq))
    for (const [index, row] of rows.entries()) {
      const naive = expected[index]
      expect(row.parentNode).toBe(naive?.parent)
      expect(row.parentInteraction).toBe(naive?.parent == null ? null : nameOf.get(naive.parent))
      expect(row.reward, `seed ${seed}`).toBe(naive?.reward)
      if (naive?.return == null) expect(row.return).toBeNull()
      else expect(row.return, `seed ${seed}`).toBeCloseTo(naive.return, 9)
      expect(row.messages).toEqual(naive?.messages)
      expect(unrolled(row.versions ?? [])).toEqual(naive?.versions)
      const { tokens, call } = session.nodes[row.node] ?? {}
      expect(row).toMatchObject({
        model: 'policy',
        finishReason: call?.finishReason,
        discarded: null,
        usage: call?.usage,
      })
      expect([row.promptIds, row.ids, row.logprobs]).toEqual([
        tokens?.promptIds ?? null,
        tokens?.ids ?? null,
        tokens?.logprobs ?? null,
      ])
      expect(row.routedExperts).toEqual(tokens?.routedExperts ?? null)
    }
  }
})

test('merged rows hold every branch, and train each sampled token once', async () => {
  const reasons = { prompt: 0, reply: 0, none: 0, shared: 0 }
  for (const seed of seeds) {
    const session = randomSession({ seed, gaps: seed % 5 === 0 })
    const naive = new NaiveRows(session, 0.5)
    const expected = naive.merged()
    const returns = new Map(naive.interactions().map((each) => [each.seq, each]))
    const rows = await mergedRows(session, { discount: 0.5, skipWithoutTokens: true })
    expect(rows.map((row) => row.samples.map(({ node }) => node))).toEqual(expected.map(({ samples }) => samples))
    const trained = new Map<number, number>()
    for (const [index, row] of rows.entries()) {
      const { ids = [], sampledBy = [], last = -1 } = expected[index] ?? {}
      expect(Array.from(row.ids)).toEqual(ids)
      expect(row.mask).toHaveLength(ids.length)
      expect(row.logprobs).toHaveLength(ids.length)
      const versions = unrolled(row.versions)
      for (const sample of row.samples) {
        const node = session.nodes[sample.node]
        const end = sample.start + sample.count
        expect(row.ids.subarray(sample.start, end)).toEqual(node?.tokens?.ids)
        const known = node?.tokens?.logprobs.map((logprob) => (Number.isFinite(logprob) ? logprob : 0))
        expect(row.logprobs.subarray(sample.start, end)).toEqual(known)
        expect(node && versions.slice(sample.start, end)).toEqual(node && versionsOf(node))
        expect(sample.reward).toBe(returns.get(sample.node)?.reward)
        if (sample.trains) trained.set(sample.node, (trained.get(sample.node) ?? 0) + 1)
        else reasons.shared += 1
      }
      for (const [position, by] of sampledBy.entries()) {
        const trains = row.samples.some(({ node, trains: here }) => node === by && here)
        // An infinite log-probability is 0 in the row, and its token is not trained.
        expect(row.mask[position]).toBe(trains && row.logprobs[position] !== 0 ? 1 : 0)
        if (by === null) expect([row.logprobs[position], versions[position]]).toEqual([0, null])
      }
      const value = returns.get(last)?.return ?? null
      if (value === null) expect(row.reward).toBeNull()
      else expect(row.reward).toBeCloseTo(value, 9)
      checkSplit(session, naive, row)
      reasons[row.splitAt?.within ?? 'none'] += 1
    }
    const complete = session.nodes.filter(({ call, tokens }) => call && tokens)
    expect(trained).toEqual(new Map(complete.map(({ seq }) => [seq, 1])))
  }
  // Every way to split and to share has come up.
  for (const count of Object.values(reasons)) expect(count).toBeGreaterThan(50)
})

/** The row begins anew because the prompt differs from what came before at exactly that token, and not before it. */
function checkSplit(session: RandomSession, naive: NaiveRows, row: MergedRow): void {
  const first = session.nodes[row.samples[0]?.node ?? -1]
  if (!first) throw new Error('a row without samples')
  const before = naive.parentOf(first, ({ call, tokens }) => call !== undefined && tokens !== undefined)
  if (!row.splitAt) {
    expect(before).toBeUndefined()
    return
  }
  const earlier = [...(before?.tokens?.promptIds ?? []), ...(before?.tokens?.ids ?? [])]
  const prompt = Array.from(first.tokens?.promptIds ?? [])
  const { token, within, node } = row.splitAt
  expect(node).toBe(before?.seq)
  expect(prompt.slice(0, token)).toEqual(earlier.slice(0, token))
  expect(prompt[token]).not.toBe(earlier[token])
  expect(within).toBe(token < (before?.tokens?.promptIds?.length ?? 0) ? 'prompt' : 'reply')
}

test('lost samples are shown on request and never trained on', async () => {
  let shown = 0
  for (const seed of seeds) {
    const session = randomSession({ seed })
    const lost = session.nodes.filter(({ discarded }) => discarded)
    const without = await interactionRows(session)
    const rows = (await interactionRows(session, { includeDiscarded: true })).slice(without.length)
    expect(without.every(({ discarded }) => discarded === null)).toBe(true)
    expect(rows.map(({ node, discarded }) => [node, discarded])).toEqual(
      lost.map(({ seq, discarded }) => [seq, discarded?.why]),
    )
    expect(rows.every((row) => row.finishReason === null && row.reward === null && row.return === null)).toBe(true)

    const merged = (await mergedRows(session, { includeDiscarded: true })).slice((await mergedRows(session)).length)
    expect(merged.map(({ samples }) => samples[0]?.node)).toEqual(lost.map(({ seq }) => seq))
    expect(merged.every(({ mask, reward }) => reward === null && mask.every((value) => value === 0))).toBe(true)
    shown += merged.length
  }
  expect(shown).toBeGreaterThan(50)
})

const opened: StoredSession = {
  id: 's',
  group: 'g',
  tenant: 't',
  keyDigest: 'k',
  startedAt: 1,
  data: { taskId: 'sum' },
}

test('a session without a complete reply is reported, not exported', async () => {
  const empty = new ConversationRows(
    recorded({ session: opened, nodes: [], rewards: [{ node: null, value: 1, at: 1 }] }),
    options,
  )
  expect(await Array.fromAsync(empty)).toMatchObject([
    { kind: 'empty', session: 's', group: 'g', tenant: 't', sealed: false, reward: 1, lost: 0 },
  ])
  const lostOnly = randomSession({ seed: 1, samples: 12 }).nodes.filter(({ call }) => !call)
  const lost = lostOnly.filter(({ discarded }) => discarded).length
  const session = { ...opened, end: { at: 2, why: 'expired' } } as const
  const merged = new ConversationRows(recorded({ session, nodes: lostOnly, rewards: [] }), {
    ...options,
    rows: 'merged',
  })
  expect(lost).toBeGreaterThan(0)
  expect(await Array.fromAsync(merged)).toMatchObject([{ kind: 'empty', sealed: true, reward: null, lost }])
})

test('a session without a trainable reply is reported, not exported', async () => {
  const { nodes } = randomSession({ seed: 2, samples: 12 })
  const bare = nodes.map(({ tokens: _lacking, ...node }) => node)
  const rewards = [{ node: null, value: 0, at: 1 }]
  const found = new ConversationRows(recorded({ session: opened, nodes: bare, rewards }), {
    ...options,
    rows: 'merged',
    skipWithoutTokens: true,
  })
  expect(await Array.fromAsync(found)).toMatchObject([{ kind: 'empty', session: 's', reward: 0 }])
  expect(found.steps.withoutTokens).toBeGreaterThan(0)
})

test('a reply without tokens has null arrays, is counted, and is refused in merged rows', async () => {
  const session = randomSession({ seed: 8, samples: 30, gaps: true })
  const complete = session.nodes.filter(({ call }) => call)
  const gaps = complete.filter(({ tokens }) => !tokens)
  expect(gaps.length).toBeGreaterThan(2)
  const all = new ConversationRows(recorded(session), options)
  await Array.fromAsync(all)
  expect(all.steps.withoutTokens).toBe(gaps.length)
  const bare = (await interactionRows(session)).filter(({ ids }) => ids === null)
  expect(bare.map(({ node }) => node)).toEqual(gaps.map(({ seq }) => seq))
  expect(bare[0]).toMatchObject({ promptIds: null, logprobs: null, versions: null, routedExperts: null })
  await expect(mergedRows(session)).rejects.toThrow(/session-8 .*node \d+.*skip/)
  const samples = (await mergedRows(session, { skipWithoutTokens: true })).flatMap((row) => row.samples)
  expect(new Set(samples.map(({ node }) => node)).size).toBe(complete.length - gaps.length)
})

/** The first random session of one reply that has an end and tokens. */
function singleReply() {
  for (const seed of seeds) {
    const session = randomSession({ seed, samples: 1 })
    const reply = session.nodes.at(-1)
    if (reply?.call && reply.tokens && reply.tokens.ids.length > 1) {
      return { session, reply: { ...reply, tokens: reply.tokens } }
    }
  }
  throw new Error('no seed gives one')
}

test('incomplete token ids or log-probabilities count as missing', async () => {
  const { session, reply } = singleReply()
  const { tokens } = reply
  const withTokens = (changed: Partial<typeof tokens>): RandomSession => {
    const nodes = session.nodes.map((node) =>
      node.seq === reply.seq ? { ...node, tokens: { ...tokens, ...changed } } : node,
    )
    return { ...session, nodes }
  }
  const none = withTokens({ ids: new Int32Array(), logprobs: new Float32Array() })
  expect((await interactionRows(none))[0]).toMatchObject({ ids: null, logprobs: null, versions: null })
  const lacking = new ConversationRows(recorded(none), options)
  await Array.fromAsync(lacking)
  expect(lacking.steps.withoutTokens).toBe(1)
  const some = withTokens({ logprobs: tokens.logprobs.subarray(1) })
  expect((await interactionRows(some))[0]).toMatchObject({ ids: tokens.ids, logprobs: null })
  await expect(mergedRows(some)).rejects.toThrow(expect.objectContaining({ code: 'usage' }))
})

test.each([Number.NaN, -Infinity, -9999])(
  'a token with the log-probability %d is in its row but not trained',
  async (unknown) => {
    const { session, reply } = singleReply()
    const logprobs = reply.tokens.logprobs.slice()
    logprobs[1] = unknown
    const nodes = session.nodes.map((node) =>
      node.seq === reply.seq ? { ...node, tokens: { ...reply.tokens, logprobs } } : node,
    )
    const given = { ...session, nodes }
    expect((await interactionRows(given))[0]).toMatchObject({ logprobs })
    const [row] = await mergedRows(given)
    const start = row?.samples[0]?.start ?? 0
    expect(row?.logprobs.subarray(start, start + 2)).toEqual(Float32Array.of(logprobs[0] ?? 0, 0))
    expect(row?.mask.subarray(start, start + 2)).toEqual(Uint8Array.of(1, 0))
  },
)

test('the reward of a very long conversation reaches its first reply', async () => {
  const { reply } = singleReply()
  const nodes = Array.from({ length: 30_000 }, (_, seq) => ({ ...reply, seq, parent: seq === 0 ? null : seq - 1 }))
  const rows = await interactionRows({ session: opened, nodes, rewards: [{ node: null, value: 3, at: 1 }] })
  expect(rows).toHaveLength(30_000)
  expect(rows[0]).toMatchObject({ reward: null, return: 3 })
})

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

function residentBytes(): number {
  collectGarbage()
  return process.memoryUsage().arrayBuffers
}

test.each(['interactions', 'merged'] as const)(
  '%s of a long conversation hold one prompt, not one per turn',
  async (kind) => {
    const { reply } = singleReply()
    const { tokens: _tokens, ...bare } = reply
    const output = bare.call?.usage.output ?? 0
    const bareNodes = Array.from({ length: 200 }, (_, seq) => ({
      ...bare,
      seq,
      parent: seq === 0 ? null : seq - 1,
      lacksTokens: false,
    }))
    const before = residentBytes()
    let most = 0
    let allBytes = 0
    function* nodes(): Generator<MessageNode, void, void> {
      for (const node of bareNodes) {
        // Each begins with the one before it and its reply.
        const promptIds = new Int32Array(1 + node.seq * 500)
        allBytes += promptIds.byteLength
        yield { ...node, tokens: { promptIds, ids: new Int32Array(output), logprobs: new Float32Array(output) } }
        if (node.seq % 40 === 39) most = Math.max(most, residentBytes() - before)
      }
    }
    const empty = recorded({ session: opened, nodes: [], rewards: [] })
    const rows = new ConversationRows({ ...empty, bareNodes, nodes }, { ...options, rows: kind })
    const kinds = new Set<string>()
    for await (const row of rows) kinds.add(row.kind)
    expect([...kinds]).toEqual([kind === 'merged' ? 'merged' : 'interaction'])
    expect(most).toBeLessThan(allBytes / 3)
  },
)
