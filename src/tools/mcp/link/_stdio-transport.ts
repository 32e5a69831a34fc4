import { within } from '../../../kit/index.ts'
import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client'
import { MillraceError } from '../../../errors/index.ts'
import { maxMessageBytes } from './_message-limits.ts'
import { MessageLines } from './_message-lines.ts'
import { isRpcMessage } from './_rpc-message.ts'
import type { ServerProcess } from '../process/server-process.ts'

const exitLimitMs = 1_000
const maxWaitingBytes = 64 * 1024 * 1024

export interface StdioTransportOptions {
  /** The longest message that is accepted; a longer one ends the connection. 64 MB if not given. */
  readonly maxLineBytes?: number
}

/**
 * Messages to and from a server process, a line of JSON each. The process is given, already started; closing the transport closes
 * it. `onclose` is called once, when nothing of the process is left, however it ended.
 */
export class StdioTransport implements Transport {
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: Transport['onmessage']

  readonly #process: ServerProcess
  readonly #lines: MessageLines
  #closed: Promise<void> | undefined
  #failure: MillraceError | undefined

  constructor(process: ServerProcess, { maxLineBytes = maxMessageBytes }: StdioTransportOptions = {}) {
    this.#process = process
    this.#lines = new MessageLines({
      maxBytes: maxLineBytes,
      onLine: (line) => this.#receive(line),
      tooLong: () => tooLong(process.server, maxLineBytes),
    })
  }

  /** Why the connection is gone; undefined while it works. */
  get failure(): MillraceError | undefined {
    return this.#failure ?? this.#process.failure
  }

  async start(): Promise<void> {
    const { stdout } = this.#process
    const read = (chunk: Buffer): void => {
      try {
        this.#lines.push(chunk)
      } catch (error) {
        // Further output is read and dropped, so that the server does not hang while it writes.
        stdout.off('data', read).resume()
        this.#fail(MillraceError.from(error, 'tool_infra'))
      }
    }
    stdout.on('data', read)
    stdout.once('end', () => void this.#expectEnd())
    this.#closed = this.#process.ended.then(async () => {
      // Messages that could not be written are reported first: their senders must not take that for a lost answer.
      await new Promise(setImmediate)
      this.onclose?.()
    })
  }

  /**
   * Resolves when the message was handed to the system. Rejects, with `written: false` in the data, only if the server cannot
   * have got the whole message, and then before `onclose` is called.
   */
  send(message: JSONRPCMessage): Promise<void> {
    const { stdin, exit, server } = this.#process
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
    if (!(await within(this.#process.ended, exitLimitMs))) this.#fail(silent(this.#process.server))
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
  return new MillraceError('tool_infra', `server '${server}' closed its output but did not exit, so it was ended`, {
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

/** The message in a line; undefined if it is none. */
function parsed(line: string): JSONRPCMessage | undefined {
  try {
    const value: unknown = JSON.parse(line)
    return isRpcMessage(value) ? value : undefined
  } catch {
    return undefined
  }
}
