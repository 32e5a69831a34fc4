/**
 * How long 500 multi-turn sessions take over eight backends, one of them slow and one with few places left, under each policy
 * of routing. The backends are simulators that charge for each prompt token they have not cached.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { HttpBackend, Model, modelConfigSchema, type ModelConfigInput } from '../../src/inference/index.ts'
import type { Message } from '../../src/schema/index.ts'
import { atLeast, atMost, median, table, type Benchmark } from '../shared/benchmark.ts'
import { BenchChild } from '../shared/bench-child.ts'

/** As many replies as one engine makes at once. */
const places = 16

const policies = {
  sticky: 'sticky',
  'round-robin': 'round-robin',
  'consistent-hash': 'consistent-hash',
  /** With a budget that fits these engines; not with `--quick`. */
  'sticky, own budget': { policy: 'sticky', budget: { absolute: places, relative: 1.5 } },
} as const satisfies Record<string, ModelConfigInput['routing']>

type Policy = keyof typeof policies

const all = Object.keys(policies) as Policy[]

const sessions = 500
/** Words of the first prompt of a session, and of what a tool returns in each turn. */
const promptWords = 400
const resultWords = 150
/** How long the tools of a turn take. */
const toolMs = 100

const usual = {
  ttftMs: 20,
  prefillMs: 100,
  tokensPerSecond: 500,
  prefixCacheTokens: 500_000,
  maxRunning: places,
} as const
const slow = {
  ...usual,
  ttftMs: 4 * usual.ttftMs,
  prefillMs: 4 * usual.prefillMs,
  tokensPerSecond: usual.tokensPerSecond / 4,
}
/** Three quarters of its places are taken by others. */
const overloaded = { ...usual, maxRunning: places / 4 }

interface Outcome {
  readonly wallMs: number
  readonly failed: number
  readonly cachedShare: number
  readonly breaks: number
}

export const benchmark: Benchmark = async ({ isQuick, say }) => {
  const rounds = isQuick ? 1 : 3
  const names = isQuick ? all.slice(0, 3) : all
  const turns = isQuick ? 8 : 10
  await using backends = new BenchChild(new URL('./backends.ts', import.meta.url), [
    slow,
    overloaded,
    ...Array.from({ length: 6 }, () => usual),
  ])
  const { urls } = await backends.answer<{ urls: string[] }>()
  const outcomes = new Map<Policy, Outcome[]>(names.map((policy) => [policy, []]))
  for (let round = 0; round < rounds; round += 1) {
    for (const policy of names) {
      const outcome = await runSessions(urls, { policy, round, turns })
      outcomes.get(policy)?.push(outcome)
      const { wallMs, cachedShare, breaks } = outcome
      say(`  round ${round + 1}, ${policy}: ${seconds(wallMs)} s, ${percent(cachedShare)} cached, ${breaks} breaks`)
    }
  }
  const of = (policy: Policy, pick: (outcome: Outcome) => number): number =>
    median((outcomes.get(policy) ?? []).map(pick))
  const wallOf = (policy: Policy): number => of(policy, ({ wallMs }) => wallMs)
  const rows = names.map((policy) => [
    policy,
    seconds(wallOf(policy)),
    (wallOf(policy) / wallOf('sticky')).toFixed(2),
    percent(of(policy, ({ cachedShare }) => cachedShare)),
    String(of(policy, ({ breaks }) => breaks)),
  ])
  const overRoundRobin = wallOf('round-robin') / wallOf('sticky')
  const overHash = wallOf('consistent-hash') / wallOf('sticky')
  const failed = [...outcomes.values()].flat().reduce((sum, outcome) => sum + outcome.failed, 0)
  return {
    table: table([['policy', 'wall s', 'over sticky', 'cached', 'breaks'], ...rows]),
    figures: {
      overRoundRobin,
      overHash,
      ...Object.fromEntries(names.map((policy) => [`${policy}.wallMs`, wallOf(policy)])),
    },
    bars: [
      atLeast('sticky: speed over round-robin', overRoundRobin, 1.5),
      atLeast('sticky: speed over consistent hashing', overHash, 1.2),
      atMost('requests that failed', failed, 0),
    ],
  }
}

/** All sessions begin together. Each round and policy has words of its own, so that nothing of them is cached. */
async function runSessions(
  urls: readonly string[],
  { policy, round, turns }: { readonly policy: Policy; readonly round: number; readonly turns: number },
): Promise<Outcome> {
  const config = modelConfigSchema.parse({
    name: 'sim',
    backends: urls.map((url) => ({ url })),
    routing: policies[policy],
    maxConcurrency: sessions,
  })
  await using parts = new AsyncDisposableStack()
  const backends = config.backends.map((each) => parts.use(new HttpBackend(config, each, {})))
  const model = parts.use(new Model(config, backends))
  const { signal } = new AbortController()
  let [failed, input, cachedInput] = [0, 0, 0]
  const runSession = async (index: number): Promise<void> => {
    const sessionId = `${policy}-${round}-${index}`
    const messages: Message[] = [{ role: 'user', content: `${sessionId} ${words(index, promptWords)}` }]
    for (let turn = 0; turn < turns; turn += 1) {
      const request = { messages: [...messages], tools: [], sampling: {}, captureTokens: false, sessionId }
      const reply = await model.call(request, { signal })
      if (reply.status !== 'complete') {
        failed += 1
        return
      }
      input += reply.usage.input
      cachedInput += reply.usage.cachedInput
      messages.push(reply.message, { role: 'user', content: words(index + turn, resultWords) })
      await pause(toolMs)
    }
    model.endSession(sessionId)
  }
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: sessions }, (_, index) => runSession(index)))
  const wallMs = performance.now() - startedAt
  const breaks = (model.status().backends ?? []).reduce((sum, { affinityBreaks }) => sum + affinityBreaks, 0)
  return { wallMs, failed, cachedShare: cachedInput / input, breaks }
}

function words(seed: number, count: number): string {
  return Array.from({ length: count }, (_, index) => `w${(seed * 31 + index * 7) % 997}`).join(' ')
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(1)
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)}%`
}
