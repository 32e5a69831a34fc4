import { MillraceError, type ErrorCode } from '../../../src/errors/index.ts'
import { sleep } from '../../../src/kit/index.ts'
import type { Backend, BackendReply, BackendRequest } from '../../../src/apis/backend.ts'

/** What comes of one try: a reply, or the error it fails with. */
export type Answer = BackendReply | MillraceError

export const goodReply: BackendReply = {
  message: { role: 'assistant', content: 'ok' },
  finishReason: 'stop',
  usage: { calls: 1, input: 10, cachedInput: 0, output: 5, reasoning: 0 },
}

export function failure(code: ErrorCode, retryAfterMs?: number): MillraceError {
  return new MillraceError(code, 'as the test says', retryAfterMs === undefined ? {} : { data: { retryAfterMs } })
}

/** A backend that answers as a test says, after a while, and leaves at once when it is aborted. */
export class FakeBackend implements Backend {
  readonly name: string
  readonly requests: BackendRequest[] = []
  inFlight = 0
  mostInFlight = 0
  isClosed = false
  readonly #answer: (request: BackendRequest, number: number) => Answer
  readonly #latencyMs: (request: BackendRequest) => number

  constructor(
    name: string,
    answer: (request: BackendRequest, number: number) => Answer,
    latencyMs: number | ((request: BackendRequest) => number) = 10,
  ) {
    this.name = name
    this.#answer = answer
    this.#latencyMs = typeof latencyMs === 'number' ? () => latencyMs : latencyMs
  }

  async send(request: BackendRequest): Promise<BackendReply> {
    this.requests.push(request)
    const number = this.requests.length
    this.inFlight += 1
    this.mostInFlight = Math.max(this.mostInFlight, this.inFlight)
    try {
      await sleep(this.#latencyMs(request), request.signal)
      const answer = this.#answer(request, number)
      if (answer instanceof MillraceError) throw answer
      return answer
    } finally {
      this.inFlight -= 1
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.isClosed = true
  }
}
