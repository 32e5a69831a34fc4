import assert from 'node:assert/strict'
import { type Counts, runCase, sumOf } from '../part.ts'
import { adminKey, type ArealServers, type Target } from './areal-servers.ts'

const loadMs = 5 * 60_000
/** Before the first load: a process of Node's is several times slower until its code is compiled. */
const warmUp = { atOnce: 20, rollouts: 300, stream: false } as const
const shortWarmUp = 16
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
/** What is required. Measured so far, on a machine with other work: 7 to 10. */
const minOfTheirs = 20

/** CPU of AReaL's servers, of ours on AReaL's wire, and of ours on their own routes, for the same rollouts. */
export async function compareCosts(servers: ArealServers, theirs: Target, ours: Target): Promise<Counts> {
  const counts: Counts[] = []
  for (const native of [false, true]) await measured(servers, ours, { ...warmUp, native })
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
  const wire = await measured(servers, ours, load)
  const native = await measured(servers, ours, { ...load, native: true })
  assert.deepEqual([wire.ok, wire.failures, native.ok], [load.rollouts, {}, load.rollouts])
  const own = await measured(servers, theirs, load).catch(() => undefined)
  const texts = [`${wire.cpuMs.toFixed(2)} ms, ${native.cpuMs.toFixed(2)} ms on our own routes`]
  if (own) {
    texts.push(`${own.cpuMs.toFixed(1)} ms in AReaL’s servers (${own.ok} of ${load.rollouts} done)`)
    assert.ok(own.cpuMs >= minOfTheirs * wire.cpuMs, `${texts.join(', ')}: less than ${minOfTheirs} times`)
  } else texts.push('AReaL’s servers were not done in time')
  assert.ok(wire.cpuMs <= maxOfNative * native.cpuMs, `${texts.join(', ')}: more than ${maxOfNative} times`)
  return texts.join(', ')
}

interface Asked {
  readonly atOnce: number
  readonly rollouts: number
  readonly stream: boolean
  readonly native?: boolean
}

async function measured(servers: ArealServers, { url, pids }: Target, load: Asked): Promise<Cost> {
  const place = { what: 'load', gateway: url, key: adminKey, pids, warmUp: Math.min(load.atOnce, shortWarmUp) }
  return await servers.ask<Cost>({ ...place, ...load }, loadMs)
}
