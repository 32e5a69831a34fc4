import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { plainError } from './_plain-error.ts'

/** The share of connections that are there only to be told that there is no room: a crowd comes in all at once. */
const overflowShare = 1 / 8
const maxOverflow = 256
/** One of those that asks for nothing makes room for the next. */
const overflowTimeoutMs = 5_000
/** From so much of the budget on, a connection is not kept when its reply has ended. */
const crowdedShare = 0.75

export interface ConnectionFigures {
  readonly connections: number
  readonly maxConnections: number
  /** Requests that were told to come again. */
  readonly turnedAway: number
  /** Connections that could not even be told. */
  readonly dropped: number
}

/**
 * Admits as many clients as the process has descriptors for. Some of those are kept back, so that a connection
 * beyond the rest can still be accepted, and its request answered with "come again" instead of a reset. Node cannot leave
 * a connection waiting in the kernel, so what is beyond even that is dropped.
 */
export class ConnectionAdmission {
  readonly #server: Server
  readonly #maxClients: number
  /** Those in the overflow included; bounded by `maxConnections` of the server. */
  #connections = 0
  /** Connections beyond those that are admitted, whose requests are told to come again. */
  readonly #overflow = new Set<Socket>()
  #turnedAway = 0
  #dropped = 0

  /** `maxSockets` is what this server may hold in all. */
  constructor(app: FastifyInstance, maxSockets: number) {
    this.#server = app.server
    this.#maxClients = Math.max(1, maxSockets - Math.min(maxOverflow, Math.ceil(maxSockets * overflowShare)))
    this.#server.maxConnections = maxSockets
    this.#server.on('connection', (socket: Socket) => this.#onConnection(socket))
    this.#server.on('drop', () => (this.#dropped += 1))
    app.addHook('onRequest', (request, reply, next) => {
      if (this.#overflow.has(request.raw.socket)) return this.#turnAway(request, reply)
      // Politely: an idle connection that is closed may be one on which a request is just being sent.
      if (this.#connections > this.#maxClients * crowdedShare) reply.raw.setHeader('connection', 'close')
      return next()
    })
  }

  get figures(): ConnectionFigures {
    return {
      connections: this.#connections,
      maxConnections: this.#maxClients,
      turnedAway: this.#turnedAway,
      dropped: this.#dropped,
    }
  }

  #onConnection(socket: Socket): void {
    this.#connections += 1
    const isBeyond = this.#connections > this.#maxClients
    if (isBeyond) {
      this.#overflow.add(socket)
      socket.setTimeout(overflowTimeoutMs, () => socket.destroy())
    }
    socket.once('close', () => {
      this.#connections -= 1
      this.#overflow.delete(socket)
    })
  }

  /** Once all of the request has come: on a connection that closes with something unread, the answer is lost. */
  #turnAway({ raw }: FastifyRequest, reply: FastifyReply): void {
    this.#turnedAway += 1
    reply.hijack()
    raw.once('end', () => {
      reply.raw.writeHead(full.status, full.headers)
      reply.raw.end(full.body)
    })
    raw.resume()
  }
}

const full = plainError(
  503,
  {
    code: 'overloaded',
    message: 'the gateway has as many connections as it has file descriptors for; try again in a moment',
  },
  { 'retry-after': '1' },
)
