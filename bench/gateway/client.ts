/**
 * The load: so many clients at once, each with a connection of its own, that ask turn after turn of one conversation after
 * another. Prints the address where it takes loads, one at a time; each answers with its figures.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Client, type Dispatcher } from 'undici'
import { microsecondsNow, requestBody, stampDigits, stampMark, streamEvents } from './conversation.ts'
import { cpuMsOf } from '../shared/process-usage.ts'

export interface GatewayLoad {
  readonly origin: string
  readonly headers: Readonly<Record<string, string>>
  /** The key of each conversation, in turn; without any, no session. */
  readonly keys: readonly string[]
  readonly concurrency: number
  readonly requests: number
  /** Of each client, before anything is measured. */
  readonly warmUps: number
  readonly turns: number
  readonly stream: boolean
  readonly asksTokens: boolean
  /** The process that is measured. */
  readonly pid: number
}

export interface LoadFigures {
  readonly wallMs: number
  /** Of the measured process. */
  readonly cpuMs: number
  readonly failed: number
  /** What went wrong first. */
  readonly problem?: string
  /** Of a whole reply: from the request to its end. Of a stream: from when the backend sent a chunk to when it was here. */
  readonly p50Ms: number
  readonly p99Ms: number
  /** From the request to the first bytes of the reply's body. */
  readonly firstP50Ms: number
  /** How much of its time a reply had taken when its first bytes came, at worst: 1 is a reply that came all at once. */
  readonly worstFirstShare: number
}

const path = '/v1/chat/completions'
const wholeMark = Buffer.from('"finish_reason":"stop"')
const streamMark = Buffer.from('data: [DONE]')
const stamp = Buffer.from(stampMark)
const longestMark = stamp.length + stampDigits
const shownBytes = 300
const nothing = Buffer.alloc(0)

class Load {
  readonly #load: GatewayLoad
  readonly #bodies: readonly string[]
  /** Of replies, or of chunks. */
  readonly latencies: number[] = []
  readonly firsts: number[] = []
  failed = 0
  problem: string | undefined
  worstFirstShare = 0
  #left = 0
  #conversations = 0

  constructor(load: GatewayLoad) {
    this.#load = load
    this.#bodies = Array.from({ length: load.turns }, (_, index) => requestBody(index + 1, load))
  }

  async run(): Promise<LoadFigures> {
    const { concurrency, requests, warmUps, pid, origin } = this.#load
    const clients = Array.from({ length: concurrency }, () => new Client(origin, { pipelining: 1 }))
    await this.#ask(clients, concurrency * warmUps)
    this.latencies.length = 0
    this.firsts.length = 0
    this.worstFirstShare = 0
    const startedAt = performance.now()
    const cpuBefore = cpuMsOf(pid)
    await this.#ask(clients, requests)
    const cpuMs = cpuMsOf(pid) - cpuBefore
    const wallMs = performance.now() - startedAt
    await Promise.all(clients.map((client) => client.close()))
    return {
      wallMs,
      cpuMs,
      failed: this.failed,
      ...(this.problem !== undefined && { problem: this.problem }),
      p50Ms: quantile(this.latencies, 0.5),
      p99Ms: quantile(this.latencies, 0.99),
      firstP50Ms: quantile(this.firsts, 0.5),
      worstFirstShare: this.worstFirstShare,
    }
  }

  async #ask(clients: readonly Client[], requests: number): Promise<void> {
    this.#left = requests
    await Promise.all(clients.map((client) => this.#converse(client)))
  }

  async #converse(client: Client): Promise<void> {
    const { keys, headers: given } = this.#load
    while (this.#left > 0) {
      const key = keys[this.#conversations % keys.length]
      this.#conversations += 1
      const headers = key === undefined ? given : { ...given, authorization: `Bearer ${key}` }
      for (const body of this.#bodies) {
        if (this.#left === 0) return
        this.#left -= 1
        await new Promise<void>((resolve) => {
          const exchange = new Exchange(this, this.#load.stream, resolve)
          client.dispatch({ path, method: 'POST', headers, body }, exchange)
        })
      }
    }
  }
}

/** One request and its reply. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #load: Load
  readonly #isStream: boolean
  readonly #onEnd: () => void
  readonly #sentAt = performance.now()
  #firstAt = 0
  #status = 0
  #chunks = 0
  #isComplete = false
  #tail: Buffer = nothing
  #start = ''

  constructor(load: Load, isStream: boolean, onEnd: () => void) {
    this.#load = load
    this.#isStream = isStream
    this.#onEnd = onEnd
  }

  onRequestStart(): void {}

  onResponseStart(_controller: unknown, status: number): void {
    this.#status = status
  }

  onResponseData(_controller: unknown, part: Buffer): void {
    if (this.#firstAt === 0) {
      this.#firstAt = performance.now()
      this.#start = part.toString('utf8', 0, Math.min(part.length, shownBytes))
    }
    const bytes = this.#tail.length === 0 ? part : Buffer.concat([this.#tail, part])
    const notedTo = this.#isStream ? this.#noteChunks(bytes) : 0
    if (bytes.includes(this.#isStream ? streamMark : wholeMark)) this.#isComplete = true
    // What is cut by the end of a part is seen with the next one.
    this.#tail = bytes.subarray(Math.max(notedTo, bytes.length - longestMark + 1))
  }

  onResponseEnd(): void {
    const [whole, first] = [performance.now() - this.#sentAt, this.#firstAt - this.#sentAt]
    if (!this.#isStream) this.#load.latencies.push(whole)
    this.#load.firsts.push(first)
    this.#load.worstFirstShare = Math.max(this.#load.worstFirstShare, first / whole)
    const isComplete = this.#isComplete && (!this.#isStream || this.#chunks === streamEvents)
    if (this.#status !== 200 || !isComplete) this.#fail(`${this.#status}, ${this.#chunks} chunks: ${this.#start}`)
    this.#onEnd()
  }

  onResponseError(_controller: unknown, error: Error): void {
    this.#fail(String(error))
    this.#onEnd()
  }

  /** Returns where the last whole stamp ends. */
  #noteChunks(bytes: Buffer): number {
    const now = microsecondsNow()
    let end = 0
    for (;;) {
      const at = bytes.indexOf(stamp, end)
      const next = at + stamp.length + stampDigits
      if (at === -1 || next > bytes.length) return end
      end = next
      this.#chunks += 1
      this.#load.latencies.push((now - Number(bytes.toString('latin1', at + stamp.length, end))) / 1000)
    }
  }

  #fail(problem: string): void {
    this.#load.failed += 1
    this.#load.problem ??= problem
  }
}

function quantile(values: number[], share: number): number {
  values.sort((one, other) => one - other)
  return values[Math.floor((values.length - 1) * share)] ?? Number.NaN
}

const server = createServer((request, response) => {
  const parts: Buffer[] = []
  request.on('data', (part: Buffer) => parts.push(part))
  request.on('end', () => {
    const load = new Load(JSON.parse(Buffer.concat(parts).toString()) as GatewayLoad)
    void load.run().then((figures) => response.end(JSON.stringify(figures)))
  })
})
// A load takes as long as it takes.
server.requestTimeout = 0
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
})
process.once('SIGTERM', () => process.exit(0))
