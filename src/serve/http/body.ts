import type { IncomingMessage } from 'node:http'
import type { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { depthProblem, TurnBatches, utf8Problem } from '../../kit/index.ts'
import { describeIssues, safeParse } from '../../schema/index.ts'
import { clientGone } from './errors.ts'

/** A body that has arrived. What it takes up counts until it is released, which whoever got it does once. */
export interface BufferedBody extends Disposable {
  readonly length: number
  readonly parts: readonly Buffer[]
  readonly bytes: Buffer
}

interface BodyBounds {
  readonly maxBodyBytes: number
  readonly maxBodiesBytes: number
  /** What a client is told when all of that is taken: each server has a status of its own for it. */
  readonly fullStatus: 429 | 503
}

export class BodyIntake {
  readonly #bounds: BodyBounds
  #bufferedBytes = 0

  constructor(bounds: BodyBounds) {
    this.#bounds = bounds
  }

  get bufferedBytes(): number {
    return this.#bufferedBytes
  }

  /**
   * The body of a request. Rejects with what is wrong with it. The rest of a refused body is read and dropped, because closing
   * on a client that still writes would cost it the answer.
   */
  read(request: IncomingMessage): Promise<BufferedBody> {
    return new Upload(this, request).arrive(Number(request.headers['content-length'] ?? 0))
  }

  /** What keeps so many more bytes from being taken; undefined if nothing does, and then they are. */
  take(bytes: number, total: number): MillraceError | undefined {
    const problem = this.refusal(bytes, total)
    if (!problem) this.#bufferedBytes += bytes
    return problem
  }

  refusal(bytes: number, total: number): MillraceError | undefined {
    const { maxBodyBytes, maxBodiesBytes, fullStatus } = this.#bounds
    if (total > maxBodyBytes) {
      return new MillraceError('usage', `a body has at most ${maxBodyBytes} bytes; send less, or raise maxBodyBytes`, {
        data: { status: 413 },
      })
    }
    if (this.#bufferedBytes + bytes > maxBodiesBytes) {
      const full = `the server holds ${this.#bufferedBytes} bytes of running requests, and the limit is ${maxBodiesBytes}; try again in a moment`
      return new MillraceError('overloaded', full, { data: { status: fullStatus, retryAfterMs: 1000 } })
    }
    return undefined
  }

  release(bytes: number): void {
    this.#bufferedBytes -= bytes
  }
}

/** A part takes up some 200 bytes beside its content: so many that are smaller than this on average are put together. */
const maxLoose = 256
const smallPart = 4096

const wholeBodies = new TurnBatches()

class Upload implements BufferedBody {
  readonly #intake: BodyIntake
  readonly #request: IncomingMessage
  readonly #whole = Promise.withResolvers<BufferedBody>()
  #parts: Buffer[] = []
  #loose = 0
  #looseBytes = 0
  /** In bytes; none when they were given back. */
  #arrived = 0
  #isDecided = false

  constructor(intake: BodyIntake, request: IncomingMessage) {
    this.#intake = intake
    this.#request = request
  }

  get length(): number {
    return this.#arrived
  }

  get parts(): readonly Buffer[] {
    return this.#parts
  }

  get bytes(): Buffer {
    const [only] = this.#parts
    if (only && this.#parts.length === 1) return only
    const bytes = Buffer.concat(this.#parts, this.#arrived)
    this.#parts = [bytes]
    return bytes
  }

  arrive(declaredBytes: number): Promise<BufferedBody> {
    const request = this.#request
    // What is too much is refused before it is read. Only what has come counts: anybody can announce anything.
    const problem = packed(request) ?? this.#intake.refusal(declaredBytes, declaredBytes)
    if (problem) {
      this.#refuse(problem)
      request.resume()
    } else {
      request.on('data', this.#onData)
      request.on('end', this.#onEnd)
      request.on('close', this.#onClose)
    }
    return this.#whole.promise
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
    wholeBodies.add(() => this.#whole.resolve(this))
  }

  /** With a problem, if the HTTP server has refused what was left of the request. */
  readonly #onClose = (problem?: MillraceError): void => {
    if (!this.#isDecided) this.#refuse(problem ?? clientGone())
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

  #refuse(problem: MillraceError): void {
    this.#isDecided = true
    this[Symbol.dispose]()
    this.#whole.reject(problem)
  }
}

/** Clients do not pack their requests unless told to, but some proxies and middlewares can. */
function packed({ headers: { 'content-encoding': encoding } }: IncomingMessage): MillraceError | undefined {
  if (encoding === undefined || encoding.toLowerCase() === 'identity') return undefined
  return new MillraceError('usage', 'encoded bodies are not supported: send the body without content-encoding', {
    data: { status: 415 },
  })
}

interface JsonBodyRules<Schema extends z.ZodType> {
  readonly schema: Schema
  readonly maxDepth: number
}

export async function jsonBody<Schema extends z.ZodType>(
  request: IncomingMessage,
  intake: BodyIntake,
  { schema, maxDepth }: JsonBodyRules<Schema>,
): Promise<z.output<Schema>> {
  using body = await intake.read(request)
  const checked = safeParse(schema, body.length === 0 ? {} : parseJson(body.bytes, maxDepth))
  if (checked.success) return checked.data
  throw new MillraceError('usage', `the body does not fit: ${describeIssues(checked.error.issues)}`)
}

const decoder = new TextDecoder()

/** The value of a body. Fails with `usage` if it is none, not UTF-8, or too deep. */
export function parseJson(bytes: Uint8Array, maxDepth: number): unknown {
  const problem = utf8Problem(bytes) ?? depthProblem(bytes, maxDepth)
  if (problem !== undefined) throw new MillraceError('usage', problem)
  try {
    return JSON.parse(decoder.decode(bytes))
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw new MillraceError('usage', `the body is not JSON: ${rawMessage}`, { cause: error })
  }
}
