import { execFileSync } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { LoopLag, RecentWaits } from './loop-lag.ts'

function block(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}

describe('LoopLag', () => {
  it('reports a stall as its maximum, without the sampling interval', async () => {
    using lag = new LoopLag(0)
    await delay(30)
    block(60)
    await delay(30)
    const { maxMs, p99Ms, meanMs, utilization } = lag.snapshot()
    expect(maxMs).toBeGreaterThan(30)
    expect(p99Ms).toBeLessThanOrEqual(maxMs + 1)
    expect(meanMs).toBeLessThan(maxMs)
    expect(utilization).toBeGreaterThan(0)
    expect(utilization).toBeLessThanOrEqual(1)
  })

  it('reports a stall that begins right at a snapshot', async () => {
    using lag = new LoopLag(0)
    await delay(30)
    lag.snapshot()
    block(60)
    await delay(30)
    expect(lag.snapshot().maxMs).toBeGreaterThan(30)
    expect(lag.worstMs).toBeGreaterThan(30)
  })

  it('forgets a stall after two windows but remembers the worst', async () => {
    using lag = new LoopLag(0)
    await delay(30)
    block(120)
    await delay(30)
    for (let read = 0; read < 2; read += 1) lag.snapshot()
    expect(lag.worstMs).toBeGreaterThan(90)
    await expect.poll(() => lag.snapshot().maxMs).toBeLessThan(lag.worstMs)
  })

  it('gives every caller within one window the same figures', async () => {
    using lag = new LoopLag(60_000)
    const early = lag.snapshot()
    expect(early.p99Ms).toBe(0)
    using frequent = new LoopLag(20)
    // Asked again, because a window may end between two calls.
    await expect.poll(() => frequent.snapshot() === frequent.snapshot()).toBe(true)
  })

  it('does not keep a process alive', () => {
    const module = fileURLToPath(new URL('loop-lag.ts', import.meta.url))
    const script = `import { LoopLag } from ${JSON.stringify(module)}; new LoopLag(); process.stdout.write('ended')`
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], { timeout: 120_000 })
    expect(output.toString()).toBe('ended')
  })
})

it('RecentWaits reports the longest of the recent waits and drops old ones', () => {
  const waits = new RecentWaits()
  expect({ p99: waits.p99Ms, max: waits.maxMs }).toEqual({ p99: 0, max: 0 })
  waits.add(5_000)
  for (let ms = 1; ms <= 200; ms += 1) waits.add(ms)
  expect({ p99: waits.p99Ms, max: waits.maxMs }).toEqual({ p99: 199, max: 5_000 })
  for (let round = 0; round < 512; round += 1) waits.add(3)
  expect({ p99: waits.p99Ms, max: waits.maxMs }).toEqual({ p99: 3, max: 3 })
})
