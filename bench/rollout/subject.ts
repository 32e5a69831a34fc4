/**
 * The measured process: either Millrace, journal and all, or the floor, a bare undici pool that sends the same bytes to the
 * same paths and does nothing else. Prints one line of figures.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Pool } from 'undici'
import { LoopWatch, type LoopFigures } from '../shared/loop-watch.ts'

export interface SubjectInput {
  readonly kind: 'millrace' | 'floor'
  readonly url: string
  readonly concurrency: number
  readonly rollouts: number
  readonly warmUp: number
  /** A file of recorded request bodies, two per rollout: written by millrace when `record` is set, read by the floor. */
  readonly bodies: string
  readonly record?: boolean
}

export interface SubjectFigures extends LoopFigures {
  readonly rollouts: number
  readonly wallMs: number
  readonly cpuMs: number
  readonly peakMemoryMb: number
  readonly unfinished: number
}

const poolSize = 256

const input = JSON.parse(process.argv[2] ?? '{}') as SubjectInput
const measured = input.kind === 'floor' ? await runFloor() : await runMillrace()
console.log(JSON.stringify({ ...measured, peakMemoryMb: process.resourceUsage().maxRSS / 1024 }))

async function runFloor(): Promise<Omit<SubjectFigures, 'peakMemoryMb'>> {
  const bodies = JSON.parse(await readFile(input.bodies, 'utf8')) as string[][]
  const { origin, pathname } = new URL(input.url)
  // Pools of 256, as Millrace has them: undici walks a pool's list for a free connection, and one of 2,048 costs twice.
  const pools = Array.from({ length: Math.ceil(input.concurrency / poolSize) }, () => {
    return new Pool(origin, { connections: Math.min(poolSize, input.concurrency), pipelining: 1 })
  })
  const path = `${pathname.replace(/\/$/, '')}/chat/completions`
  const headers = { 'content-type': 'application/json', authorization: 'Bearer EMPTY' }
  let unfinished = 0
  let next = 0
  const work = async (count: number): Promise<void> => {
    const end = next + count
    const one = async (_: unknown, worker: number): Promise<void> => {
      const pool = pools[worker % pools.length] as Pool
      while (next < end) {
        const pair = bodies[next % bodies.length] ?? []
        next += 1
        for (const body of pair) {
          const reply = await pool.request({ path, method: 'POST', headers, body })
          await reply.body.text()
          if (reply.statusCode !== 200) unfinished += 1
        }
      }
    }
    await Promise.all(Array.from({ length: input.concurrency }, one))
  }
  await work(input.warmUp)
  const figures = await measure(() => work(input.rollouts))
  await Promise.all(pools.map((pool) => pool.close()))
  return { ...figures, rollouts: input.rollouts, unfinished }
}

async function runMillrace(): Promise<Omit<SubjectFigures, 'peakMemoryMb'>> {
  const { evaluate } = await import('../../src/index.ts')
  const { registerResolver } = await import('../../src/env/index.ts')
  const { settleHeapForRollouts } = await import('../../src/kit/index.ts')
  registerResolver()
  // As the command line does.
  settleHeapForRollouts()
  const root = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  let unfinished = 0
  const work = async (count: number): Promise<void> => {
    const run = evaluate({
      environment: join(import.meta.dirname, '../shared/environment.ts'),
      model: { name: 'bench', backends: [{ url: input.url }], price: { input: 0, output: 0 } },
      concurrency: input.concurrency,
      limit: count,
      preflight: false,
      run: { root, resume: 'never' },
    })
    for await (const record of run) if (record.outcome !== 'completed') unfinished += 1
  }
  try {
    if (input.record) await recordBodies(work)
    await work(input.warmUp)
    const figures = await measure(() => work(input.rollouts))
    return { ...figures, rollouts: input.rollouts, unfinished }
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

/** Notes the bodies of a few hundred rollouts as they pass by, for the floor to send again. */
async function recordBodies(work: (count: number) => Promise<void>): Promise<void> {
  const bySession = new Map<string, string[]>()
  const onRequest = (message: unknown): void => {
    const { request } = message as { request: { headers: string[] | string; body: unknown } }
    const headers = Array.isArray(request.headers) ? request.headers : request.headers.split(/: |\r\n/)
    const session = headers[headers.indexOf('x-session-id') + 1] ?? ''
    const bodies = bySession.get(session) ?? []
    bodies.push((request.body as Buffer).toString())
    bySession.set(session, bodies)
  }
  subscribe('undici:request:create', onRequest)
  await work(512)
  unsubscribe('undici:request:create', onRequest)
  const pairs = [...bySession.values()].filter((bodies) => bodies.length === 2)
  if (pairs.length < 500) throw new Error(`only ${pairs.length} of 512 rollouts had two turns`)
  await writeFile(input.bodies, JSON.stringify(pairs))
}

async function measure(work: () => Promise<void>): Promise<LoopFigures & { wallMs: number; cpuMs: number }> {
  const watch = new LoopWatch()
  const cpuBefore = process.cpuUsage()
  const startedAt = performance.now()
  await work()
  const wallMs = performance.now() - startedAt
  const { user, system } = process.cpuUsage(cpuBefore)
  return { wallMs, cpuMs: (user + system) / 1000, ...watch.stop() }
}
