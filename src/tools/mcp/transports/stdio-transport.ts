import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client'
import { MillraceError } from '../../../errors/index.ts'
import { LineSplitter, settlesWithin } from '../../../kit/index.ts'
import { Program } from '../../../process/index.ts'
import type { StdioServerConfig } from '../config/server-config.ts'
import type { ServerLink } from './pending-calls.ts'
import { isRpcMessage, maxMessageBytes } from './rpc-messages.ts'

const exitLimitMs = 1_000
const maxWaitingBytes = 64 * 1024 * 1024

export async function stdioLink(server: string, config: StdioServerConfig): Promise<ServerLink> {
  const process = await Program.start({ kind: 'server', name: server, config })
  const transport = new StdioTransport(process)
  return {
    transport,
    hasRequestPerCall: false,
    pid: process.pid,
    ended: process.ended,
    get failure() {
      return transport.failure
    },
    get ending() {
      const { exit, stderr } = process
      return { exitCode: exit?.code ?? undefined, signal: exit?.signal ?? undefined, stderr: stderr || undefined }
    },
    sendCall(message, onFailure) {
      transport.send(message).catch((cause: Error) => {
        // A `MillraceError` says that the server cannot have got the message. Any other error means that it is not JSON, which is
        // not the server's fault.
        const kind = cause instanceof MillraceError ? 'lost' : 'refused'
        onFailure({ kind, mayHaveRun: false, cause })
      })
      return undefined
    },
    async close() {
      // First, because `process.close()` is the one that throws if something could not be ended.
      await process.close()
      await transport.close()
    },
  }
}

/** A line of JSON each. Closing it closes the process. `onclose` is called once, when nothing of the process is left. */
export class StdioTransport implements Transport {
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: Transport['onmessage']

  readonly #process: Program
  readonly #maxLineBytes: number
  readonly #lines: LineSplitter
  #closed: Promise<void> | undefined
  #failure: MillraceError | undefined

  constructor(process: Program, { maxLineBytes = maxMessageBytes } = {}) {
    this.#process = process
    this.#maxLineBytes = maxLineBytes
    this.#lines = new LineSplitter(maxLineBytes)
  }

  /** Why the connection is gone; undefined while it works. */
  get failure(): MillraceError | undefined {
    return this.#failure ?? this.#process.failure
  }

  async start(): Promise<void> {
    const { stdout } = this.#process
    const read = (chunk: Buffer): void => {
      const lines = this.#lines.push(chunk)
      for (const line of lines) if (line !== undefined) this.#receive(line)
      if (!lines.includes(undefined) && !this.#lines.isSkipping) return
      // Further output is read and dropped, so that the server does not hang while it writes.
      stdout.off('data', read).resume()
      this.#fail(tooLong(this.#process.name, this.#maxLineBytes))
    }
    stdout.on('data', read)
    stdout.once('end', () => void this.#expectEnd())
    this.#closed = this.#process.ended.then(async () => {
      // Messages that could not be written are reported first: their senders must not take that for a lost answer.
      await new Promise(setImmediate)
      this.onclose?.()
    })
  }

  /** Rejects, with `written: false` and before `onclose`, only if the server cannot have got the whole message. */
  send(message: JSONRPCMessage): Promise<void> {
    const { stdin, exit, name: server } = this.#process
    if (exit || !stdin.writable) return Promise.reject(neverWritten(server, 'it is gone'))
    if (stdin.writableLength > maxWaitingBytes)
      return Promise.reject(neverWritten(server, 'it does not read its input'))
    return new Promise((resolve, reject) => {
      // A line that was written in part does not count: the server acts on whole lines.
      stdin.write(JSON.stringify(message) + '\n', (error) => {
        if (error) reject(neverWritten(server, 'it is gone', error))
        else resolve()
      })
    })
  }

  async close(): Promise<void> {
    await this.#process.close()
    await this.#closed
  }

  #receive(line: string): void {
    if (line.trim() === '') return
    const message = parsed(line)
    // Banners and logs do not belong on stdout but are common there.
    if (!message) return
    try {
      this.onmessage?.(message)
    } catch (error) {
      // A message that its receiver could not read; the next one may be good.
      this.onerror?.(MillraceError.from(error, 'tool_infra'))
    }
  }

  /** A server whose output has ended is about to exit. If it does not, it still cannot answer any more, and is ended. */
  async #expectEnd(): Promise<void> {
    if (!(await settlesWithin(this.#process.ended, exitLimitMs))) this.#fail(silent(this.#process.name))
  }

  #fail(error: MillraceError): void {
    this.#failure = error
    this.onerror?.(error)
    this.close().catch((failure: unknown) => this.onerror?.(MillraceError.from(failure, 'tool_infra')))
  }
}

function neverWritten(server: string, why: string, cause?: unknown): MillraceError {
  return new MillraceError('tool_infra', `nothing was sent to server '${server}': ${why}`, {
    data: { server, written: false },
    cause,
  })
}

function silent(server: string): MillraceError {
  return new MillraceError('tool_infra', `server '${server}' closed its output but did not exit, so it was killed`, {
    data: { server },
  })
}

function tooLong(server: string, maxBytes: number): MillraceError {
  return new MillraceError(
    'tool_infra',
    `server '${server}' wrote a line of more than ${maxBytes} bytes and was closed: have its tool return less`,
    { data: { server, maxBytes } },
  )
}

function parsed(line: string): JSONRPCMessage | undefined {
  try {
    const value: unknown = JSON.parse(line)
    return isRpcMessage(value) ? value : undefined
  } catch {
    return undefined
  }
}
