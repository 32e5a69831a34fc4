import type { FastifyInstance, FastifyRequest } from 'fastify'
import { MillraceError } from '../errors/index.ts'
import { refuse, replyWithError } from './_door-error.ts'
import type { ServeBounds } from './serve-bounds.ts'

/** Bounds the memory of bodies that are being read or checked at one time, by what they say they will be. */
export class BodyBudget {
  readonly #bounds: Pick<ServeBounds, 'maxBodyBytes' | 'maxBodiesBytes'>
  readonly #held = new Map<FastifyRequest['raw'], number>()
  #bytes = 0

  constructor(bounds: Pick<ServeBounds, 'maxBodyBytes' | 'maxBodiesBytes'>) {
    this.#bounds = bounds
  }

  guard(app: FastifyInstance): void {
    app.addHook('onRequest', (request, reply, next) => {
      const { headers, raw } = request
      if (headers['transfer-encoding'] !== undefined) {
        return void refuse(reply, 'length_required', 'say how long the body is: content-length')
      }
      const bytes = Number(headers['content-length'] ?? 0)
      if (bytes === 0) return next()
      const { maxBodyBytes, maxBodiesBytes } = this.#bounds
      if (bytes > maxBodyBytes) {
        return void refuse(reply, 'too_large', `a body has at most ${maxBodyBytes} bytes; send it in parts`)
      }
      if (this.#bytes + bytes > maxBodiesBytes) {
        const full = `requests of ${this.#bytes} bytes are being read already; try again in a moment`
        return void replyWithError(reply, new MillraceError('overloaded', full))
      }
      this.#bytes += bytes
      this.#held.set(raw, bytes)
      // However it ends.
      reply.raw.on('close', () => this.release(request))
      return next()
    })
  }

  /** Its tasks are accepted, and counted there. */
  release({ raw }: FastifyRequest): void {
    this.#bytes -= this.#held.get(raw) ?? 0
    this.#held.delete(raw)
  }
}
