import type { ClientReply } from '../../../src/endpoint/index.ts'

/** A client that keeps what it is sent. It goes away, or takes no more for a while, when a test says so. */
export class RecordingClient implements ClientReply {
  isGone = false
  #onGone: (() => void) | undefined
  readonly #waiters: { readonly events: number; readonly resolve: () => void }[] = []
  status: number | undefined
  headers: Readonly<Record<string, string>> = {}
  /** A whole reply, or a stream so far. */
  text = ''
  eventCount = 0
  isEnded = false
  isFull = false
  #resume: (() => void) | undefined

  onGone(listener: (() => void) | undefined): void {
    this.#onGone = listener
  }

  get document(): Record<string, unknown> {
    return JSON.parse(this.text) as Record<string, unknown>
  }

  /** The data of the events so far, parsed where they are JSON. */
  get events(): unknown[] {
    return this.text
      .split('\n')
      .filter((line) => line.startsWith('data: '))
      .map((line) => (line === 'data: [DONE]' ? '[DONE]' : (JSON.parse(line.slice(6)) as unknown)))
  }

  whole(status: number, headers: Readonly<Record<string, string>>, body: string): void {
    this.status = status
    this.headers = headers
    this.text = body
    this.isEnded = true
  }

  beginStream(headers: Readonly<Record<string, string>>): void {
    this.status = 200
    this.headers = headers
  }

  write(text: string, resume: () => void): boolean {
    this.text += text
    this.eventCount += text.split('\n\n').length - 1
    for (const { events, resolve } of this.#waiters) if (this.eventCount >= events) resolve()
    if (!this.isFull) return true
    this.#resume = resume
    return false
  }

  endStream(): void {
    this.isEnded = true
  }

  /** Resolves when so many events have come. */
  async received(events: number): Promise<void> {
    if (this.eventCount >= events) return
    await new Promise<void>((resolve) => this.#waiters.push({ events, resolve }))
  }

  leave(): void {
    this.isGone = true
    this.#onGone?.()
  }

  resume(): void {
    this.isFull = false
    this.#resume?.()
  }
}
