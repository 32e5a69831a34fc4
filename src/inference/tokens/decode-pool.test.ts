import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'
import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../../kit/_testing/active-resources.ts'
import { runningThreads, threadsSince } from '../../kit/_testing/running-threads.ts'
import { shareWith, workerUrl } from '../../kit/index.ts'
import { codeOf, failureOf } from '../_testing/code-of.ts'
import { ask, openBackend } from '../_testing/open-backend.ts'
import { ScriptedServer, chatReply, sendJson } from '../_testing/scripted-server.ts'
import { decodePool, DecodePool, offLoopBytes } from './decode-pool.ts'

const body = (count: number): Record<string, unknown> => ({
  choices: [
    {
      message: { role: 'assistant', content: 'long' },
      finish_reason: 'stop',
      token_ids: Array.from({ length: count }, (_, index) => index),
      logprobs: { content: Array.from({ length: count }, (_, index) => ({ token: 'x', logprob: index / -256 - 1 })) },
      routed_experts: [[[1, 2]], [[3, 4]]],
    },
  ],
})
const bytesOf = (count: number): Uint8Array<ArrayBuffer> => new Uint8Array(Buffer.from(JSON.stringify(body(count))))

/** A thread that does what the test says instead of decoding. */
async function strangeThread(code: string): Promise<{ entry: URL } & AsyncDisposable> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-decode-'))
  const path = join(folder, 'thread.mjs')
  writeFileSync(path, `import { parentPort } from 'node:worker_threads'\n${code}`)
  return {
    entry: pathToFileURL(path),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  }
}

const answers = `parentPort.postMessage({ kind: 'decoded', job, scanned: { tokens: {}, rest: 'null' }, workMs: 0 })`

describe('the pool', () => {
  test('takes the bytes and gives back typed arrays', async () => {
    const pool = new DecodePool()
    await using _hold = pool.hold()
    // Two pieces lie in the same memory, and one ends within a number.
    const bytes = bytesOf(2_000)
    const pieces = [bytes.subarray(0, 1_001), bytes.subarray(1_001, 30_000), new Uint8Array(bytes.subarray(30_000))]
    const { scanned } = await pool.decode(pieces)
    expect(pieces.map(({ byteLength }) => byteLength)).toEqual([0, 0, 0])
    expect(scanned.tokens).toEqual({
      ids: Int32Array.from({ length: 2_000 }, (_, index) => index),
      logprobs: Float32Array.from({ length: 2_000 }, (_, index) => index / -256 - 1),
      routedExperts: { shape: [2, 1, 2], experts: Uint8Array.of(1, 2, 3, 4) },
    })
    expect(JSON.parse(scanned.rest)).toMatchObject({
      choices: [{ message: { content: 'long' } }],
    })
    expect(pool.status()).toMatchObject({ threads: 1, decoded: 1, queued: 0, running: 0, lost: 0, refused: 0 })
    expect(pool.status().busyMs).toBeGreaterThan(0)
  })

  test("takes this worker's share of the cores, also if it was made before that was known", async () => {
    const pool = new DecodePool()
    await using _hold = pool.hold()
    shareWith({ onMachine: availableParallelism(), inProcess: 1 })
    try {
      const all = Array.from({ length: 20 }, () => pool.decode([bytesOf(500)]))
      expect(pool.status()).toMatchObject({ threads: 1, maxThreads: 1 })
      await Promise.all(all)
    } finally {
      shareWith({ onMachine: 1, inProcess: 1 })
    }
    expect(pool.status().maxThreads).toBe(availableParallelism())
  })

  test('grows while all threads are busy, up to its limit', async () => {
    const pool = new DecodePool({ maxThreads: 3 })
    await using _hold = pool.hold()
    const all = Array.from({ length: 50 }, () => pool.decode([bytesOf(500)]))
    expect(pool.status()).toMatchObject({ threads: 3, maxThreads: 3, running: 6, queued: 44 })
    await Promise.all(all)
    const status = pool.status()
    expect(status).toMatchObject({ decoded: 50, queued: 0, running: 0 })
    expect(status.waitP99Ms).toBeGreaterThan(0)
    expect(status.waitMaxMs).toBeGreaterThanOrEqual(status.waitP99Ms)
  })

  test('refuses what does not fit beside what waits, and what nobody holds it for', async () => {
    const pool = new DecodePool({ maxThreads: 1, maxQueuedBytes: 50_000 })
    expect(pool.accepts(10)).toBe(false)
    await using _hold = pool.hold()
    // Nothing waits, so it may be of any size.
    expect(pool.accepts(1_000_000)).toBe(true)
    const accepted: Promise<unknown>[] = []
    while (pool.accepts(20_000)) accepted.push(pool.decode([new Uint8Array(20_000)]))
    // Two are with the thread, two wait, and a third would be too much.
    expect(accepted).toHaveLength(4)
    await Promise.all(accepted)
    expect(pool.accepts(20_000)).toBe(true)
    expect(pool.status()).toMatchObject({ decoded: 4, refused: 2 })
  })

  test('fails the replies of a thread that dies, and puts another in its place', async () => {
    await using thread = await strangeThread(
      `parentPort.on('message', ({ job, pieces }) => { if (pieces[0].length === 1) process.exit(7); ${answers} })`,
    )
    const before = runningThreads()
    const pool = new DecodePool({ maxThreads: 1, entry: thread.entry })
    await using _hold = pool.hold()
    await pool.decode([new Uint8Array(2)])
    const doomed = pool.decode([new Uint8Array(1)])
    const beside = pool.decode([new Uint8Array(2)])
    const after = pool.decode([new Uint8Array(3)])
    expect(await failureOf(() => doomed)).toMatchObject({ message: 'it exited with code 7' })
    // It was with the same thread, which may or may not have come to it.
    await Promise.allSettled([beside])
    expect(await after).toMatchObject({ scanned: { rest: 'null' } })
    expect(pool.status().lost).toBeGreaterThanOrEqual(1)
    expect(pool.status().threads).toBe(1)
    expect(threadsSince(before)).toBe(1)
  })

  test('fails a reply that its thread cannot decode, and keeps the thread', async () => {
    const failure = `parentPort.postMessage({ kind: 'failed', job, error: { code: 'internal', message: 'too odd' } })`
    await using thread = await strangeThread(
      `parentPort.on('message', ({ job, pieces }) => { if (pieces[0].length === 1) ${failure}; else ${answers} })`,
    )
    const pool = new DecodePool({ maxThreads: 1, entry: thread.entry })
    await using _hold = pool.hold()
    const odd = pool.decode([new Uint8Array(1)])
    const beside = pool.decode([new Uint8Array(2)])
    expect(await failureOf(() => odd)).toMatchObject({ code: 'internal', rawMessage: 'too odd' })
    expect(await beside).toMatchObject({ scanned: { rest: 'null' } })
    expect(pool.status()).toMatchObject({ threads: 1, decoded: 1, lost: 1, running: 0, queued: 0 })
  })

  test('gives up on threads that cannot start', async () => {
    await using thread = await strangeThread(`throw new Error('cannot start')`)
    const before = runningThreads()
    const pool = new DecodePool({ maxThreads: 1, entry: thread.entry })
    await using _hold = pool.hold()
    const jobs = Array.from({ length: 20 }, () => pool.decode([new Uint8Array(1)]))
    for (const job of jobs) expect(await failureOf(() => job)).toMatchObject({ message: 'cannot start' })
    expect(pool.accepts(1)).toBe(false)
    expect(pool.status()).toMatchObject({ threads: 0, queued: 0, running: 0 })
    expect(threadsSince(before)).toBe(0)
  })

  test('ends with the last who holds it, once, and starts again for the next', async () => {
    const before = { threads: runningThreads(), resources: activeResources() }
    const pool = new DecodePool()
    const first = pool.hold()
    const second = pool.hold()
    await pool.decode([bytesOf(10)])
    await first[Symbol.asyncDispose]()
    await first[Symbol.asyncDispose]()
    expect(pool.status().threads).toBe(1)
    const left = pool.decode([bytesOf(10)])
    const failed = codeOf(() => left)
    await second[Symbol.asyncDispose]()
    expect(await failed).toBe('closed')
    expect(pool.status()).toMatchObject({ threads: 0, running: 0 })
    expect(threadsSince(before.threads)).toBe(0)
    await expect.poll(() => leftSince(before.resources)).toEqual([])
    await using _third = pool.hold()
    expect(await pool.decode([bytesOf(10)])).toBeDefined()
  })
})

test('a thread lives through a reply that it cannot decode', async () => {
  const worker = new Worker(workerUrl(import.meta, './_decode-thread'))
  try {
    worker.postMessage({ job: 1, pieces: 'no pieces' })
    expect(await once(worker, 'message')).toMatchObject([{ kind: 'failed', job: 1, error: { code: 'internal' } }])
    worker.postMessage({ job: 2, pieces: [bytesOf(3)] })
    expect(await once(worker, 'message')).toMatchObject([{ kind: 'decoded', job: 2 }])
  } finally {
    await worker.terminate()
  }
})

describe('a backend', () => {
  const long = Math.ceil(offLoopBytes / 20)

  test('reads a long reply on a thread, as it reads a short one', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, body(long)))
    await using backend = openBackend(server.url)
    const before = decodePool.status().decoded
    const { message, tokens } = await backend.send(ask({ captureTokens: true }))
    expect(decodePool.status().decoded).toBe(before + 1)
    expect(message).toEqual({ role: 'assistant', content: 'long' })
    expect(tokens?.ids).toEqual(Int32Array.from({ length: long }, (_, index) => index))
    expect(tokens?.logprobs.at(-1)).toBe((long - 1) / -256 - 1)
    expect(tokens?.routedExperts).toEqual({ shape: [2, 1, 2], experts: Uint8Array.of(1, 2, 3, 4) })
  })

  test('refuses a long reply for the same reasons as a short one', async () => {
    const replies = [
      { ...body(long), choices: [] },
      { error: { message: 'no', code: 503 }, pad: 'x'.repeat(offLoopBytes) },
      JSON.stringify(body(long)).slice(0, -20),
      JSON.stringify(body(long)).replace('[0,', '[0.5,'),
    ]
    await using server = await ScriptedServer.start((response) => {
      const reply = replies[server.requests.length - 1]
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(typeof reply === 'string' ? reply : JSON.stringify(reply))
    })
    await using backend = openBackend(server.url)
    const codes: string[] = []
    for (const _reply of replies) codes.push(await codeOf(() => backend.send(ask({ captureTokens: true }))))
    expect(codes).toEqual(['model_malformed', 'model_overloaded', 'model_truncated', 'model_malformed'])
  })

  test('that is given up while its reply is decoded says so at once, and keeps its connection', async () => {
    await using server = await ScriptedServer.start((response, request) => {
      sendJson(response, request.body.includes('short') ? chatReply('short') : body(20 * long))
    })
    await using backend = openBackend(server.url)
    const controller = new AbortController()
    const { signal } = controller
    const reply = backend.send(ask({ captureTokens: true, signal }))
    const code = codeOf(() => reply)
    await expect.poll(() => decodePool.status().running + decodePool.status().queued, { interval: 1 }).toBe(1)
    controller.abort(new Error('enough'))
    expect(await code).toBe('Error: enough')
    await expect.poll(() => decodePool.status().running).toBe(0)
    await backend.send(ask({ messages: [{ role: 'user', content: 'short' }] }))
    expect(await server.openConnections()).toBe(1)
  })

  test('needs no thread when nobody asked for tokens', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, body(long)))
    await using backend = openBackend(server.url)
    const before = decodePool.status()
    await backend.send(ask())
    expect(decodePool.status()).toEqual(before)
  })
})
