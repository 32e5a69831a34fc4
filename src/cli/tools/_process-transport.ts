import { deserializeMessage, serializeMessage, type JSONRPCMessage, type Transport } from '@modelcontextprotocol/client'
import type { ServerProcess } from '../../tools/index.ts'

const maxStrayLines = 5
const maxLineLength = 32 * 1024 * 1024

/** A transport to a process for the SDK's client, which also keeps output of the process that is no message. */
export class ProcessTransport implements Transport {
  /** The first lines on the process's standard output that are no messages. */
  readonly strayLines: string[] = []
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: JSONRPCMessage) => void
  readonly #process: ServerProcess
  #rest = ''

  constructor(process: ServerProcess) {
    this.#process = process
  }

  start(): Promise<void> {
    const { stdin, stdout } = this.#process
    stdin.on('error', this.#onError)
    stdout.setEncoding('utf8').on('data', this.#onText)
    void this.#process.ended.then(() => this.onclose?.())
    return Promise.resolve()
  }

  send(message: JSONRPCMessage): Promise<void> {
    this.#process.stdin.write(serializeMessage(message))
    return Promise.resolve()
  }

  /** Stops reading. The process itself is closed by the code that started it. */
  close(): Promise<void> {
    this.#process.stdout.off('data', this.#onText)
    this.onclose?.()
    return Promise.resolve()
  }

  readonly #onError = (error: Error): void => this.onerror?.(error)

  readonly #onText = (text: string): void => {
    const lines = `${this.#rest}${text}`.split('\n')
    this.#rest = lines.pop() ?? ''
    // A line without an end is dropped.
    if (this.#rest.length > maxLineLength) this.#rest = ''
    for (const line of lines) if (line.trim() !== '') this.#onLine(line)
  }

  #onLine(line: string): void {
    let message: JSONRPCMessage
    try {
      message = deserializeMessage(line)
    } catch {
      if (this.strayLines.length < maxStrayLines) this.strayLines.push(line)
      return
    }
    this.onmessage?.(message)
  }
}
