/**
 * The load: so many clients with a connection each, all busy until the time is up. Prints a line when it begins to measure, and
 * its figures when it has measured long enough. A request that fails, however it fails, is counted.
 */
import { connect, type Socket } from 'node:net'
import { HttpFrames } from '../shared/http-frames.ts'

export interface AgentClientInput {
  readonly url: string
  readonly concurrency: number
  /** Whether it sends rows of NeMo Gym's, of which the results say the reward, and not tasks. */
  readonly isRow?: boolean
  /** Before anything counts: all connections are open, and the replies come evenly. */
  readonly warmUpMs: number
  readonly measureMs: number
}

export interface AgentClientFigures {
  readonly wallMs: number
  readonly rollouts: number
  readonly failed: number
  readonly p50Ms: number
  /** What went wrong first. */
  readonly problem?: string
}

/** A client whose connection failed does not try again at once. */
const pauseMs = 20

const { url, concurrency, isRow, warmUpMs, measureMs } = JSON.parse(process.argv[2] ?? '{}') as AgentClientInput
const completed = isRow ? '"reward":1' : '"outcome":"completed"'
const { host, hostname, port } = new URL(url)
const bodies = Array.from({ length: 997 }, (_, index) => {
  const task = { left: index, right: (index * 7) % 991 }
  return JSON.stringify(isRow ? { responses_create_params: { input: [] }, ...task } : task)
})
const latencies: number[] = []
let failed = 0
let problem: string | undefined
let sent = 0

class Connection {
  readonly #socket: Socket
  readonly #frames = new HttpFrames()
  #onReply: (reply: string) => void = () => {}

  constructor() {
    this.#socket = connect({ host: hostname, port: Number(port), noDelay: true })
    this.#socket.on('data', (chunk) => {
      for (const { head, body } of this.#frames.push(chunk)) this.#onReply(`${head}\n${body}`)
    })
    this.#socket.on('error', (error) => this.#onReply(String(error)))
    this.#socket.on('close', () => this.#onReply('the connection was closed'))
  }

  /** Resolves to head and body of the reply, or to what went wrong. */
  ask(body: string): Promise<string> {
    const head = `POST /run HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`
    return new Promise((resolve) => {
      this.#onReply = resolve
      this.#socket.write(head + body)
    })
  }

  end(): undefined {
    this.#socket.destroy()
  }
}

const startsAt = performance.now() + warmUpMs
const endsAt = startsAt + measureMs
const work = Promise.all(Array.from({ length: concurrency }, runClient))
await wait(warmUpMs)
console.log('{}')
await wait(endsAt - performance.now())
latencies.sort((one, other) => one - other)
const figures: AgentClientFigures = {
  wallMs: measureMs,
  rollouts: latencies.length,
  failed,
  p50Ms: latencies[Math.floor((latencies.length - 1) / 2)] ?? Number.NaN,
  ...(problem !== undefined && { problem }),
}
console.log(JSON.stringify(figures))
await work

async function runClient(): Promise<void> {
  let connection: Connection | undefined
  for (let sentAt = performance.now(); sentAt < endsAt; sentAt = performance.now()) {
    connection ??= new Connection()
    const reply = await connection.ask(bodies[sent++ % bodies.length] ?? '')
    if (reply.startsWith('HTTP/1.1 200 ') && reply.includes(completed)) {
      const endedAt = performance.now()
      if (endedAt >= startsAt && endedAt < endsAt) latencies.push(endedAt - sentAt)
      continue
    }
    failed += 1
    problem ??= reply.slice(0, 500)
    connection = connection.end()
    await wait(pauseMs)
  }
  connection?.end()
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
