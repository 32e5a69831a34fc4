import assert from 'node:assert/strict'
import { type Counts, runCase, sumOf } from '../part.ts'
import { adminKey, type ArealServers, type Target } from './areal-servers.ts'

const loadMs = 6 * 60_000
/** At once, and how many rollouts of three chats: their servers take up to 0.2 s of CPU for each. */
const loads = [
  { atOnce: 10, rollouts: 60, stream: false },
  { atOnce: 50, rollouts: 100, stream: false },
  { atOnce: 200, rollouts: 200, stream: false },
  { atOnce: 1000, rollouts: 1000, stream: false },
  { atOnce: 50, rollouts: 100, stream: true },
] as const

type Load = (typeof loads)[number]

interface Cost {
  readonly ok: number
  readonly failures: Readonly<Record<string, number>>
  readonly seconds: number
  /** Of the servers, for each rollout. */
  readonly cpuMs: number
}

const maxOfNative = 2
const minOfTheirs = 20

/** CPU of AReaL's servers, of ours on AReaL's wire, and of ours on their own routes, for the same rollouts. */
export async function compareCosts(servers: ArealServers, theirs: Target, ours: Target): Promise<Counts> {
  const counts: Counts[] = []
  for (const load of loads) {
    const { atOnce, stream } = load
    const name = `CPU of a rollout, ${atOnce} at once${stream ? ', streamed' : ''}`
    counts.push(await runCase(name, () => cost(servers, { theirs, ours, load })))
  }
  return sumOf(counts)
}

interface Sides {
  readonly theirs: Target
  readonly ours: Target
  readonly load: Load
}

async function cost(servers: ArealServers, { theirs, ours, load }: Sides): Promise<string> {
  const measured = async ({ url, pids }: Target, more: object = {}): Promise<Cost> => {
    const asked = {
      what: 'load',
      gateway: url,
      key: adminKey,
      pids,
      warmUp: Math.min(load.atOnce, 16),
      ...load,
      ...more,
    }
    return await servers.ask<Cost>(asked, loadMs)
  }
  const wire = await measured(ours)
  const native = await measured(ours, { native: true })
  assert.deepEqual([wire.ok, wire.failures, native.ok], [load.rollouts, {}, load.rollouts])
  const own = await measured(theirs).catch(() => undefined)
  const texts = [`${wire.cpuMs.toFixed(2)} ms, ${native.cpuMs.toFixed(2)} ms on our own routes`]
  if (own) {
    texts.push(`${own.cpuMs.toFixed(1)} ms in AReaL’s servers (${own.ok} of ${load.rollouts} done)`)
    assert.ok(own.cpuMs >= minOfTheirs * wire.cpuMs, `${texts.join(', ')}: less than ${minOfTheirs} times`)
  } else texts.push('AReaL’s servers were not done in time')
  assert.ok(wire.cpuMs <= maxOfNative * native.cpuMs, `${texts.join(', ')}: more than ${maxOfNative} times`)
  return texts.join(', ')
}
