import { expect, test } from 'vitest'
import { sleep } from '../../src/kit/index.ts'
import type { Emitted, SampleRow } from '../support/gateway/emitted-tokens.ts'
import { readBinaryRows } from '../support/gateway/read-rows.ts'
import { SimulatedFleet } from '../support/gateway/simulated-fleet.ts'

/** A longer run: `FLEET_SESSIONS=1000 FLEET_UPDATES=30 FLEET_EVERY_MS=2000 FLEET_PACE=0.1`, which makes replies ten times as long. */
const { FLEET_SESSIONS = '200', FLEET_UPDATES = '10', FLEET_EVERY_MS = '200', FLEET_PACE = '1' } = process.env
const sessions = Number(FLEET_SESSIONS)
const leastUpdates = Number(FLEET_UPDATES)
const everyMs = Number(FLEET_EVERY_MS)
const pace = Number(FLEET_PACE)

/**
 * Whether the simulators have sent the tokens from `from` on, with these versions. A reply may be in several parts, each after the
 * tokens of those before it; one that was sent again may have the same tokens as before.
 */
function isLogged(row: SampleRow, versions: readonly (string | null)[], logs: readonly Emitted[], from = 0): boolean {
  const ids = Array.from(row.ids ?? [])
  if (from === ids.length) return true
  const prompt = [...(row.promptIds ?? []), ...ids.slice(0, from)].join()
  return logs.some((part) => {
    const isNext = part.ids.length > 0 && part.finish !== null && part.promptIds.join() === prompt
    const hasTokens = isNext && part.ids.every((id, index) => id === ids[from + index])
    const versionAt = (index: number) => part.versions.findLast((span) => span.from <= index)?.version
    const hasVersions = hasTokens && part.ids.every((_id, index) => versionAt(index) === versions[from + index])
    return hasVersions && isLogged(row, versions, logs, from + part.ids.length)
  })
}

const ways = {
  finish: { simulator: { tokensPerSecond: 40 * pace }, tokens: undefined },
  // Replies must be shorter than the time between two updates.
  abort: { simulator: { tokensPerSecond: 100 * pace }, tokens: undefined },
  continue: { simulator: { tokensPerSecond: 25 * pace, tokens: 'lossy' }, tokens: 'exact' },
} as const

test.each(['finish', 'abort', 'continue'] as const)(
  'frequent updates in mode %s lose no session, and every token has its version, also if backends fail',
  { timeout: 60_000 + 10 * leastUpdates * everyMs },
  async (mode) => {
    const { simulator, tokens } = ways[mode]
    await using fleet = await SimulatedFleet.start({
      count: 4,
      simulator: { seed: 'random', ...simulator },
      model: tokens ? { tokens } : {},
    })
    const started = await fleet.gateway.startSessions({ groupSize: sessions })
    const isOver = new AbortController()
    const hasEnough = new AbortController()
    const talking = Promise.all(
      started.map(async ({ key }, index) => {
        const statuses: number[] = []
        for (let turn = 0; !hasEnough.signal.aborted; turn += 1) {
          await sleep(index % 50)
          statuses.push((await fleet.chat(key, `What is ${index} * ${turn}?`)).status)
        }
        return statuses
      }),
    ).finally(() => isOver.abort())

    const [lame, deaf, mortal] = fleet.servers
    const [lameId, deafId, mortalId] = fleet.servers.map((server) => fleet.idOf(server))
    const notOk: string[] = []
    for (let updates = 0; !isOver.signal.aborted; updates += 1) {
      if (updates === leastUpdates) hasEnough.abort()
      lame?.simulator.change({ failingControls: updates === 2 ? '/pause' : '' })
      const paused = await fleet.order('pause', { mode })
      if (updates === 5) await mortal?.close()
      const version = await fleet.order('version', { version: String(updates + 1) })
      deaf?.simulator.change({ failingControls: updates === 3 ? '/resume' : '' })
      const resumed = await fleet.order('resume', { epoch: paused.epoch ?? 0 })
      for (const { backends } of [paused, version, resumed]) {
        notOk.push(...backends.filter(({ ok }) => !ok).map(({ backend }) => `${updates} ${backend}`))
      }
      await sleep(everyMs, isOver.signal).catch(() => undefined)
    }
    const statuses = (await talking).flat()
    expect(new Set(statuses)).toEqual(new Set([200]))
    // The status names the backend that failed, and no other: except for the one that is dead, and fails for good.
    const failed = new Set(notOk.filter((entry) => !entry.endsWith(` ${mortalId}`)))
    expect(failed).toEqual(new Set([`2 ${lameId}`, `3 ${deafId}`]))
    expect(notOk).toContain(`5 ${mortalId}`)
    expect(fleet.gateway.server.gateway.status().models).toMatchObject([{ inFlight: 0, waiting: 0 }])

    await Promise.all(started.map(({ id }) => fleet.gateway.ask(`/v1/sessions/${id}/end`, { method: 'POST' })))
    const { body } = await fleet.gateway.open('/v1/export?rows=interactions&include=discarded&format=binary', {
      method: 'GET',
    })
    const rows = readBinaryRows(Buffer.from(await body.bytes())) as unknown as (SampleRow & { kind: string })[]
    const samples = rows.filter(({ kind }) => kind === 'interaction')
    expect(samples).toHaveLength(statuses.length)
    const logs = new Map(
      started.map(({ id }) => [id, fleet.servers.flatMap(({ simulator: own }) => own.emitted(id).replies)]),
    )
    let parts = 0
    for (const row of samples) {
      const recorded = (row.versions ?? []).flatMap(({ version, count }) =>
        Array.from({ length: count }, () => version),
      )
      // Replies of exact tokens have ids of the gateway's own.
      const log = logs.get(row.session) ?? []
      const named = log.filter(({ replyId }) => replyId === row.interaction)
      expect(isLogged(row, recorded, named.length > 0 ? named : log), JSON.stringify(row.versions)).toBe(true)
      if ((row.versions ?? []).length > 1) parts += 1
    }
    expect(parts > 0).toBe(mode === 'continue')
  },
)
