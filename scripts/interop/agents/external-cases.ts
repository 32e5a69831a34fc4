import assert from 'node:assert/strict'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import { isRunning, liveDescendants } from '../../../test/support/tools/processes.ts'
import { type MergedRow, type Recorded, tokenSummary } from '../token-record.ts'
import type { ExternalAgent } from './external-agents.ts'
import type { ExternalBench } from './external-bench.ts'

const attempts = 2
const limitMs = 60_000
const lookEveryMs = 20
/** Longer than the test takes. */
const endlessMs = 10 * 60_000

interface Rollout {
  readonly id: string
  readonly outcome: string
  readonly reward: number | null
  readonly usage: { readonly calls: number; readonly captured?: number; readonly driftedTurns?: number }
}

interface OfSession {
  readonly kind: string
  readonly session: string
}

/** Every rollout has the reward 1, and every sampled token is recorded as the model sent it. */
export async function recorded(agent: ExternalAgent, bench: ExternalBench, flags = ''): Promise<string> {
  await bench.evaluate(agent, `-n ${attempts} -c 4 --run recorded ${flags}`)
  const rollouts = await bench.exported<Rollout>('recorded')
  const replies = await bench.exported<Recorded & OfSession>('recorded', '--rows', 'interactions')
  const rows = await bench.exported<MergedRow & OfSession>('recorded', '--rows', 'merged')
  let tokens = 0
  for (const { id, outcome, reward, usage } of rollouts) {
    assert.deepEqual({ outcome, reward }, { outcome: 'completed', reward: 1 }, id)
    assert.equal(usage.captured, usage.calls, `${id}: replies with tokens`)
    assert.equal(usage.driftedTurns ?? 0, 0, `${id}: turns that drifted`)
    const ofRollout = ({ kind, session }: OfSession): boolean => kind !== 'end' && session === id
    const record = {
      recorded: replies.filter(ofRollout),
      emitted: await bench.emitted(id),
      rows: rows.filter(ofRollout),
    }
    tokenSummary(record, { callsAtOnce: agent.callsAtOnce })
    tokens += record.emitted.reduce((sum, { ids }) => sum + ids.length, 0)
  }
  assert.ok(rollouts.length > 0, 'there are no rollouts')
  // The last line of each says that it is complete.
  assert.deepEqual([replies.length, rows.length], [callsOf(rollouts) + 1, rollouts.length + 1], 'rows of others')
  assert.deepEqual(await bench.leftFiles(), [], 'files are left')
  return `${rollouts.length} rollouts with the reward 1, ${callsOf(rollouts)} replies, ${tokens} sampled tokens, none drifted`
}

function callsOf(rollouts: readonly Rollout[]): number {
  return rollouts.reduce((sum, { usage }) => sum + usage.calls, 0)
}

/** The client leaves while the agent's own processes run: nothing of the rollout is left, and the server goes on. */
export async function cancelled(agent: ExternalAgent, bench: ExternalBench): Promise<string> {
  await using server = await bench.serve(agent)
  const before = { ports: listeningPorts(server.pid), processes: liveDescendants(server.pid).length }
  const leaving = new AbortController()
  const busy = await start(agent, bench, { pid: server.pid, url: server.url, signal: leaving.signal })
  assert.ok(busy.ports.length > before.ports.length, 'the rollout has a port')
  leaving.abort()
  const tookMs = await until('nothing is left of the rollout', async () => {
    const now = { ports: listeningPorts(server.pid), processes: liveDescendants(server.pid).length }
    const isLeft = JSON.stringify(now) !== JSON.stringify(before) || (await bench.modelCalls()) > 0
    return (await leftOf(busy, bench)) ?? (isLeft ? `ports and processes: ${JSON.stringify(now)}` : undefined)
  })
  await until('the rollout is recorded as cancelled', async () => {
    const reply = await fetch(`${server.url}/v1/rollouts?outcome=cancelled`)
    const { rollouts } = (await reply.json()) as { readonly rollouts: readonly unknown[] }
    return rollouts.length === 1 ? undefined : `there are ${rollouts.length}`
  })
  return `${busy.pids.length} processes, the folder and the port are gone after ${tookMs.toFixed(0)} ms`
}

/** SIGKILL of the server while the agent's own processes run. */
export async function killed(agent: ExternalAgent, bench: ExternalBench): Promise<string> {
  await using server = await bench.serve(agent)
  const busy = await start(agent, bench, { pid: server.pid, url: server.url })
  process.kill(server.pid, 'SIGKILL')
  const tookMs = await until('nothing is left of the rollout', async () => await leftOf(busy, bench))
  return `${busy.pids.length} processes and the folder are gone after ${tookMs.toFixed(0)} ms`
}

async function leftOf({ pids }: Busy, bench: ExternalBench): Promise<string | undefined> {
  const files = await bench.leftFiles()
  const running = pids.filter(isRunning).map((pid) => `${pid} ${readFileSync(`/proc/${pid}/cmdline`, 'utf8')}`)
  const left = [...files, ...running]
  return left.length === 0 ? undefined : left.join(', ').replaceAll('\0', ' ')
}

interface Busy {
  /** Every process below the server. */
  readonly pids: readonly number[]
  readonly ports: readonly number[]
}

/** Asks for a rollout that takes long. Resolves when its processes run. */
async function start(
  { endless }: ExternalAgent,
  bench: ExternalBench,
  { pid, url, signal }: { readonly pid: number; readonly url: string; readonly signal?: AbortSignal },
): Promise<Busy> {
  if (endless.isModel) await bench.setModelDelay(endlessMs)
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ task: endless.task })
  const asked = fetch(`${url}/v1/rollouts`, { method: 'POST', headers, body, ...(signal && { signal }) })
  // The client leaves, or the server is killed.
  asked.then(
    async (reply) => await reply.text(),
    () => {},
  )
  await until(`${endless.processes} processes with ${endless.words}`, async () => {
    const running = liveDescendants(pid).filter(({ command }) => command.includes(endless.words))
    const areBusy = running.length >= endless.processes && (!endless.isModel || (await bench.modelCalls()) > 0)
    return areBusy ? undefined : `there are ${running.length}`
  })
  return { pids: liveDescendants(pid).map((each) => each.pid), ports: listeningPorts(pid) }
}

/** Waits until there is no difference any more. Returns how long that took. */
async function until(what: string, difference: () => Promise<string | undefined>): Promise<number> {
  const started = performance.now()
  for (;;) {
    const left = await difference()
    if (left === undefined) return performance.now() - started
    if (performance.now() - started > limitMs) throw new Error(`${what}: not after ${limitMs / 1000} s; ${left}`)
    await wait(lookEveryMs)
  }
}

/** The ports that a process listens on, from /proc. */
function listeningPorts(pid: number): number[] {
  const sockets = new Set(
    readdirSync(`/proc/${pid}/fd`).map((fd) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${fd}`)
      } catch {
        return ''
      }
    }),
  )
  const lines = readFileSync(`/proc/${pid}/net/tcp`, 'utf8').split('\n').slice(1, -1)
  return lines.flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/)
    const isOurs = state === '0A' && sockets.has(`socket:[${inode}]`)
    return isOurs ? [Number.parseInt(local.split(':')[1] ?? '', 16)] : []
  })
}
