import type { IncomingMessage } from 'node:http'
import { MillraceError } from '../errors/index.ts'
import { TurnBatches } from '../kit/index.ts'
import { clientGone } from './_client-gone.ts'

/** A body that has arrived. What it takes up counts until it is released, which whoever got it does once. */
export interface HeldBody extends Disposable {
  readonly length: number
  /** As it came: in none, one or many. */
  readonly parts: readonly Buffer[]
  /** In one piece. */
  readonly bytes: Buffer
}

export interface BodyBounds {
  readonly maxBodyBytes: number
  readonly maxBodiesBytes: number
  /** What a client is told when all of that is taken: each door has a status of its own for it. */
  readonly fullStatus: 429 | 503
}

type OnBody = (error: MillraceError | undefined, body: HeldBody | undefined) => void

/** Reads bodies, and bounds the memory of all that are being read or worked on. */
export class BodyIntake {
  readonly #bounds: BodyBounds
  #heldBytes = 0

  constructor(bounds: BodyBounds) {
    this.#bounds = bounds
  }

  get heldBytes(): number {
    return this.#heldBytes
  }

  /**
   * Calls `onBody` once: with a body, with what is wrong with it, or with neither when the client left. A body comes at the
   * end of the turn of the loop in which it was complete, or soon after, and its client may have left by then. What is left of
   * a body that was refused is read and dropped, because closing on a client that still writes would cost it the answer.
   */
  read(request: IncomingMessage, onBody: OnBody): void {
    new Upload(this, request, onBody).start(Number(request.headers['content-length'] ?? 0))
  }

  /** The same for who can wait; fails with `cancelled` when the client left. */
  whole(request: IncomingMessage): Promise<HeldBody> {
    return new Promise((resolve, reject) => {
      this.read(request, (problem, body) => {
        if (body) resolve(body)
        else reject(problem ?? clientGone())
      })
    })
  }

  /** What keeps so many more bytes from being taken; undefined if nothing does, and then they are. */
  take(bytes: number, total: number): MillraceError | undefined {
    const problem = this.refusal(bytes, total)
    if (!problem) this.#heldBytes += bytes
    return problem
  }

  /** What would keep so many more bytes from being taken. */
  refusal(bytes: number, total: number): MillraceError | undefined {
    const { maxBodyBytes, maxBodiesBytes, fullStatus } = this.#bounds
    if (total > maxBodyBytes) {
      return new MillraceError('usage', `a body has at most ${maxBodyBytes} bytes; send less, or raise maxBodyBytes`, {
        data: { status: 413 },
      })
    }
    if (this.#heldBytes + bytes > maxBodiesBytes) {
      const full = `requests of ${this.#heldBytes} bytes are being worked on, and ${maxBodiesBytes} is the most; try again in a moment`
      return new MillraceError('overloaded', full, { data: { status: fullStatus, retryAfterMs: 1000 } })
    }
    return undefined
  }

  release(bytes: number): void {
    this.#heldBytes -= bytes
  }
}

/** A part takes up some 200 bytes beside its content: so many that are smaller than this on average are put together. */
const maxLoose = 256
const smallPart = 4096

/** All bodies of this thread that have arrived and are to be worked on. */
const wholeBodies = new TurnBatches()

/** One body on its way in. */
class Upload implements HeldBody {
  readonly #intake: BodyIntake
  readonly #request: IncomingMessage
  readonly #onBody: OnBody
  #parts: Buffer[] = []
  /** Those since some were last put together. */
  #loose = 0
  #looseBytes = 0
  /** In bytes; none when they were given back. */
  #arrived = 0
  #isDecided = false

  constructor(intake: BodyIntake, request: IncomingMessage, onBody: OnBody) {
    this.#intake = intake
    this.#request = request
    this.#onBody = onBody
  }

  get length(): number {
    return this.#arrived
  }

  get parts(): readonly Buffer[] {
    return this.#parts
  }

  get bytes(): Buffer {
    const [only] = this.#parts
    // Most have come in one piece.
    if (only && this.#parts.length === 1) return only
    const bytes = Buffer.concat(this.#parts, this.#arrived)
    this.#parts = [bytes]
    return bytes
  }

  start(declaredBytes: number): void {
    const request = this.#request
    // What is too much is refused before it is read. Only what has come counts: anybody can announce anything.
    const problem = packed(request) ?? this.#intake.refusal(declaredBytes, declaredBytes)
    if (problem) {
      this.#refuse(problem)
      request.resume()
      return
    }
    request.on('data', this.#onData)
    request.on('end', this.#onEnd)
    request.on('close', this.#onClose)
  }

  [Symbol.dispose](): void {
    this.#intake.release(this.#arrived)
    this.#arrived = 0
    // The request outlives its body, for as long as it takes to answer it.
    this.#parts = []
  }

  readonly #onData = (part: Buffer): void => {
    if (this.#isDecided) return
    const problem = this.#intake.take(part.length, this.#arrived + part.length)
    if (problem) return this.#refuse(problem)
    this.#arrived += part.length
    this.#keep(part)
  }

  readonly #onEnd = (): void => {
    if (this.#isDecided) return
    // Whatever becomes of the connection now, the body is here.
    this.#isDecided = true
    wholeBodies.add(() => this.#onBody(undefined, this))
  }

  /** With a problem, if the door has refused what was left of the request. */
  readonly #onClose = (problem?: MillraceError): void => {
    if (!this.#isDecided) this.#refuse(problem)
  }

  #keep(part: Buffer): void {
    this.#parts.push(part)
    this.#loose += 1
    this.#looseBytes += part.length
    if (this.#loose < maxLoose) return
    const isSmall = this.#looseBytes < maxLoose * smallPart
    if (isSmall) this.#parts.push(Buffer.concat(this.#parts.splice(-maxLoose)))
    this.#loose = 0
    this.#looseBytes = 0
  }

  #refuse(problem: MillraceError | undefined): void {
    this.#isDecided = true
    this[Symbol.dispose]()
    this.#onBody(problem, undefined)
  }
}

/** Clients do not pack their requests unless told to, but some proxies and middlewares can. */
function packed({ headers: { 'content-encoding': encoding } }: IncomingMessage): MillraceError | undefined {
  if (encoding === undefined || encoding.toLowerCase() === 'identity') return undefined
  return new MillraceError('usage', 'a body is read as it is: send it without content-encoding', {
    data: { status: 415 },
  })
}
