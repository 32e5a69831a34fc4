import { describe, expect, it } from 'vitest'
import { sampleProgress } from '../../../../test/support/cli/fake-evaluation.ts'
import { createStyle, textWidth } from '../../terminal/text.ts'
import { progressLine, progressLines, RecentRate, startupLine } from './progress-lines.ts'

const style = createStyle(false)

describe('progressLines', () => {
  it('shows progress, rate, score, outcomes, tokens, cost, limits, lag and time left', () => {
    const text = progressLines(sampleProgress(), { columns: 80, style }).join('\n')
    for (const part of [
      'arithmetic · sim',
      'brisk-otter',
      '158/300',
      '52.7%',
      '12.7/s',
      '64 active',
      '11s left',
      '0.812 [0.778, 0.847]',
      '156 of 158 scored, 39 tasks',
      'completed 152 · max_turns 4 · model_error 2',
      '1.23M in (32.4% cached) · 210k out · $0.4212',
      '61 of 64 in flight · 3 waiting for a limit · 320 calls · 331 tries',
      'loop      lag p99 1.2ms · max 8.4ms · 34% busy',
      'store     lag p99 0.4ms · max 2.1ms · 12% busy',
      'Ctrl-C drains, twice stops',
    ]) {
      expect(text).toContain(part)
    }
  })

  it('shows no time left for a draining run', () => {
    const draining = sampleProgress({ state: 'draining' })
    expect(progressLines(draining, { columns: 80, style }).join('\n')).not.toContain(' left')
    expect(progressLine(draining)).not.toContain(' left')
    expect(progressLine(sampleProgress())).toContain('11s left')
  })

  it('shows no time left while requests wait for a failed backend', () => {
    const [model] = sampleProgress().models
    const parked = sampleProgress({ models: model ? [{ ...model, parked: 12 }] : [] })
    expect(progressLines(parked, { columns: 80, style }).join('\n')).not.toContain(' left')
    expect(progressLine(parked)).not.toContain(' left')
  })

  it('uses the singular for one task', () => {
    const score = { mean: 1, low: Number.NaN, high: Number.NaN, standardError: Number.NaN, rollouts: 4, tasks: 1 }
    const [, , reward] = progressLines(sampleProgress({ score, ended: 4 }), { columns: 80, style })
    expect(reward).toBe('reward    1.000 · 4 of 4 scored, 1 task')
  })

  it.each([200, 120, 80, 60, 40])('fits %i columns', (columns) => {
    const busy = sampleProgress({
      total: { count: 12_345_678, exact: false },
      outcomes: { completed: 1_000_000, max_turns: 5, model_error: 7, infra_timeout: 8, agent_error: 9, cancelled: 1 },
      models: [
        {
          name: 'a-model-with-a-long-name',
          limit: 512,
          inFlight: 512,
          waiting: 99,
          parked: 12,
          parkedBecause: 'http://127.0.0.1:9/v1/chat/completions cannot be reached: '.repeat(5),
          calls: 9e6,
          tries: 1e7,
        },
      ],
    })
    for (const line of progressLines(busy, { columns, style: createStyle(true) }).slice(1)) {
      expect(textWidth(line)).toBeLessThan(columns)
    }
  })

  it('works without a total, a score and a price', () => {
    const lines = progressLines(
      sampleProgress({ total: undefined, etaMs: undefined, score: undefined, cost: null, outcomes: {}, ended: 0 }),
      { columns: 80, style },
    )
    const text = lines.join('\n')
    expect(text).toContain('0 ended')
    expect(text).toContain('no rollout scored yet')
    expect(text).toContain('cost unknown')
    expect(text).not.toMatch(/NaN|undefined|left/)
  })

  it('shows that requests wait, and the state of the run', () => {
    const [model] = sampleProgress().models
    const parked = sampleProgress({ state: 'draining', models: model ? [{ ...model, parked: 12 }] : [] })
    const text = progressLines(parked, { columns: 80, style }).join('\n')
    expect(text).toContain('12 waiting: backend overloaded or unreachable')
    expect(text).toContain('draining: 64 still running')
  })

  it('shows why requests wait, if known', () => {
    const parkedBecause = 'http://127.0.0.1:9/v1 cannot be reached:\nconnect ECONNREFUSED'
    const [model] = sampleProgress().models
    const parked = sampleProgress({ models: model ? [{ ...model, parked: 12, parkedBecause }] : [] })
    const reason = 'http://127.0.0.1:9/v1 cannot be reached: connect ECONNREFUSED'
    expect(progressLines(parked, { columns: 80, style })).toContain(`          ${reason}`)
    expect(progressLine(parked)).toContain(`12 waiting: backend overloaded or unreachable (${reason})`)
  })

  it('shows which tool server rollouts wait for, and why', () => {
    const awayBecause = "server 'search' could not be opened:\nconnect ECONNREFUSED"
    const away = { server: 'search', state: 'away', waiting: 12, awayMs: 11_000, awayBecause } as const
    const calm = { server: 'files', state: 'open', waiting: 0, awayMs: 0 } as const
    const progress = sampleProgress({ servers: [calm, away] })
    const reason = "server 'search' could not be opened: connect ECONNREFUSED"
    const args = '12 rollouts wait for tool server "search", away for 11.0s'
    expect(progressLines(progress, { columns: 80, style })).toEqual(
      expect.arrayContaining([`tools     ${args}`, `          ${reason}`]),
    )
    expect(progressLine(progress)).toContain(`${args} (${reason})`)
    expect(progressLine(progress)).not.toContain('files')
    // Nobody knows how long it stays away.
    expect(progressLine(progress)).not.toContain(' left')
  })

  it('shows each worker with its lag, its memory and its blocking function', () => {
    const lag = { p99Ms: 3, maxMs: 70, meanMs: 1, utilization: 0.5 }
    const well = { id: 1, kind: 'thread', state: 'ready', running: 32, lag, memoryBytes: 81e6, restarts: 0 } as const
    const stuck = { ...well, id: 2, state: 'silent', blockedBy: 'grade (env.ts:12)', restarts: 1 } as const
    const text = progressLines(sampleProgress({ workers: [well, stuck] }), { columns: 120, style }).join('\n')
    expect(text).toContain('worker 1  32 running · lag p99 3.0ms · max 70ms · 50% busy · 81.0 MB')
    expect(text).toContain('worker 2  silent in grade (env.ts:12) · 32 running')
    expect(text).toContain('replaced 1 times')
    const line = progressLine(sampleProgress({ workers: [well, stuck] }))
    expect(line).toContain('lag p99 3.0ms')
    expect(line).toContain('worker 2 is blocked by grade (env.ts:12)')
    // One that runs a suspect on its own.
    const apart = sampleProgress({ workers: [{ ...stuck, id: -1 }] })
    expect(progressLine(apart)).toContain('quarantine worker 1 is blocked by grade (env.ts:12)')
    expect(progressLines(apart, { columns: 120, style }).join('\n')).toContain('suspect 1 silent in grade (env.ts:12)')
  })

  it('removes terminal control codes from names', () => {
    const text = progressLines(sampleProgress({ model: 'x\u001b[2J\ny' }), { columns: 80, style }).join('\n')
    expect(text).toContain('arithmetic · x y')
  })
})

describe('progressLine', () => {
  it('holds everything on one line', () => {
    expect(progressLine(sampleProgress())).toBe(
      '[12.4s] 158/300 rollouts  12.7/s  64 active  reward 0.812 [0.778, 0.847]  completed 152  max_turns 4  model_error 2  ' +
        '1.23M+210k tokens  $0.4212  lag p99 1.2ms  11s left',
    )
  })
})

describe('startupLine', () => {
  const waiting = { ended: 0, resumed: 0, outcomes: {}, elapsedMs: 2600 }

  it.each([
    [{ environment: '', run: '', model: '' }, 'loading the environment… 2.6s · Ctrl-C stops'],
    [{ models: [] }, 'arithmetic · sim starting the rollout thread… 2.6s · Ctrl-C stops'],
    [{ run: '' }, 'arithmetic · sim opening the run… 2.6s · Ctrl-C stops'],
    [{}, 'arithmetic · sim checking sim with one token… 2.6s · Ctrl-C stops'],
    [
      { hasToolServers: true },
      'arithmetic · sim checking sim with one token and opening the tool servers… 2.6s · Ctrl-C stops',
    ],
    [
      { resumed: 90_000, ended: 12_000 },
      'arithmetic · sim reading earlier results: 12,000 of 90,000… 2.6s · Ctrl-C stops',
    ],
    [{ outcomes: { completed: 0 } }, 'arithmetic · sim asking the environment for its tasks… 2.6s · Ctrl-C stops'],
  ])('shows what a starting run is doing: %j', (more, expected) => {
    expect(startupLine(sampleProgress({ ...waiting, ...more }), { columns: 80, style })).toBe(expected)
  })
})

/** What is shown at the end of a run that had ended so many at each second. */
function after(endedBySecond: readonly number[]) {
  const rate = new RecentRate()
  let shown = sampleProgress()
  for (const [second, ended] of endedBySecond.entries()) {
    shown = rate.apply(sampleProgress({ elapsedMs: second * 1000, ended, total: { count: 10_000, exact: true } }))
  }
  return shown
}

const seconds = (count: number, endedAt: (second: number) => number) =>
  Array.from({ length: count }, (_, second) => endedAt(second))

describe('RecentRate', () => {
  it('is the actual rate if that is steady', () => {
    expect(after(seconds(60, (second) => 5 * second))).toMatchObject({
      perSecond: expect.closeTo(5),
      etaMs: expect.closeTo(((10_000 - 295) / 5) * 1000),
    })
  })

  it('does not count results of an earlier launch, or the time before the first update', () => {
    expect(after(seconds(5, (second) => 9000 + 3 * second)).perSecond).toBeCloseTo(3)
  })

  it('soon ignores a standstill', () => {
    const stood = after(seconds(130, (second) => (second < 100 ? 0 : 10 * (second - 100))))
    expect(stood.perSecond).toBeGreaterThan(9)
  })

  it('uses the average while long rollouts run', () => {
    const shown = after(seconds(100, (second) => (second < 50 ? second : 50)))
    expect(shown.perSecond).toBeCloseTo(50 / 99)
    expect(after([0, 0, 0])).toMatchObject({ perSecond: 0, etaMs: undefined })
  })

  it('has no time left without a total', () => {
    const rate = new RecentRate()
    for (const elapsedMs of [0, 1000]) {
      const shown = rate.apply(sampleProgress({ elapsedMs, ended: elapsedMs, total: undefined }))
      expect(shown.etaMs).toBeUndefined()
    }
  })
})
