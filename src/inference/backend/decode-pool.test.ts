import { availableParallelism } from 'node:os'
import { describe, expect, test } from 'vitest'
import { codeOf } from '../../../test/support/inference/code-of.ts'
import { ask, openBackend } from '../../../test/support/inference/open-backend.ts'
import { chatReply, ScriptedServer, sendJson } from '../../../test/support/inference/scripted-server.ts'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { runningThreads, threadsSince } from '../../../test/support/kit/running-threads.ts'
import { shareWith } from '../../kit/index.ts'
import { decodePool, DecodePool, offLoopBytes } from './decode-pool.ts'
import { ReplyBytes } from './exchange.ts'

const read = (size: number, fill: number): Buffer => Buffer.from(new ArrayBuffer(size)).fill(fill)

const collected = (chunks: readonly Buffer[]): ReplyBytes => {
  const bytes = new ReplyBytes()
  for (const chunk of chunks) bytes.push(chunk)
  return bytes
}

test('the bytes are the chunks joined', () => {
  expect(collected([]).joined()).toHaveLength(0)
  const one = read(10, 1)
  expect(collected([one]).joined()).toBe(one)
  const two = collected([read(10, 1), read(5, 2)])
  expect(two.length).toBe(15)
  expect(two.joined()).toEqual(Buffer.concat([read(10, 1), read(5, 2)]))
})

test('give() transfers whole reads and copies the others', () => {
  const shared = read(60_000, 4)
  const chunks = [
    read(65_536, 1),
    // From Node's pool, which must not be given away.
    Buffer.from('pooled'),
    Buffer.from('pooled too'),
    read(65_536, 2),
    // The parser is still at the read that the last chunk is from.
    shared.subarray(0, 30_000),
    shared.subarray(30_000),
  ]
  const whole = Buffer.concat(chunks)
  const given = collected(chunks).give()
  expect(given[0]?.buffer).toBe(chunks[0]?.buffer)
  expect(given[2]?.buffer).toBe(chunks[3]?.buffer)
  expect(given.map(({ length }) => length)).toEqual([65_536, 16, 65_536, 60_000])
  expect(Buffer.concat(given).equals(whole)).toBe(true)
  structuredClone(given, { transfer: given.map(({ buffer }) => buffer) })
  expect(shared).toHaveLength(60_000)
})

test('give() returns nothing the second time', () => {
  const bytes = collected([read(70_000, 1), read(70_000, 2)])
  bytes.give()
  expect(bytes.give()).toEqual([])
})

test('give() transfers joined bytes without another copy', () => {
  const bytes = collected([read(70_000, 1), read(70_000, 2)])
  const joined = bytes.joined()
  const given = bytes.give()
  expect(given.map(({ length }) => length)).toEqual([140_000])
  expect(given[0]?.buffer).toBe(joined.buffer)
})

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

describe('the pool', () => {
  test('takes bytes and returns typed arrays', async () => {
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
    expect(pool.status()).toMatchObject({ threads: 1, decoded: 1, queued: 0, running: 0 })
  })

  test('takes the share of cores of its worker, also if it is set later', async () => {
    const pool = new DecodePool()
    await using _hold = pool.hold()
    shareWith({ onMachine: availableParallelism(), inProcess: 1 })
    try {
      const all = Array.from({ length: 20 }, () => pool.decode([bytesOf(500)]))
      expect(pool.status()).toMatchObject({ threads: 1 })
      await Promise.all(all)
    } finally {
      shareWith({ onMachine: 1, inProcess: 1 })
    }
  })

  test('refuses bytes over its limit, and all bytes while it has no holder', async () => {
    const pool = new DecodePool({ maxThreads: 1, maxBytes: 50_000 })
    expect(pool.accepts(10)).toBe(false)
    await using _hold = pool.hold()
    // A single reply may be of any size.
    expect(pool.accepts(1_000_000)).toBe(true)
    const accepted: Promise<unknown>[] = []
    while (pool.accepts(20_000)) accepted.push(pool.decode([new Uint8Array(20_000)]))
    expect(accepted).toHaveLength(2)
    await Promise.all(accepted)
    expect(pool.accepts(20_000)).toBe(true)
    expect(pool.status()).toMatchObject({ decoded: 2 })
  })

  test('decodes nothing if its threads cannot start', async () => {
    const pool = new DecodePool({ maxThreads: 1, entry: new URL('data:text/javascript,throw 1') })
    await using _hold = pool.hold()
    for (let round = 0; round < 3; round += 1) {
      expect(pool.accepts(1)).toBe(true)
      await expect(pool.decode([new Uint8Array(1)])).rejects.toThrow('1')
    }
    expect(pool.accepts(1)).toBe(false)
  })

  test('fails a reply that its thread cannot decode, and keeps the thread', async () => {
    const pool = new DecodePool({ maxThreads: 1 })
    await using _hold = pool.hold()
    const buffer = new ArrayBuffer(8)
    const odd = pool.decode([new Uint8Array(buffer), 'no piece' as never])
    await expect(odd).rejects.toThrow()
    expect(await pool.decode([bytesOf(3)])).toBeDefined()
    expect(pool.status()).toMatchObject({ threads: 1, decoded: 1, running: 0, queued: 0 })
  })

  test('ends when its last holder leaves, and starts again for the next', async () => {
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

describe('a backend', () => {
  const long = Math.ceil(offLoopBytes / 20)

  test('reads a long reply on a thread, with the same result as a short one', async () => {
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

  test('whose call is aborted during decoding rejects at once and keeps its connection', async () => {
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

  test('needs no thread if tokens are not requested', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, body(long)))
    await using backend = openBackend(server.url)
    const before = decodePool.status()
    await backend.send(ask())
    expect(decodePool.status()).toEqual(before)
  })
})
