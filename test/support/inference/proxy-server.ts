import { createServer, request as forward, type IncomingMessage, type Server } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import { Resource } from '../../../src/kit/index.ts'

interface Targets {
  /** The origin that plain requests go to. */
  readonly plain?: string
  /** The port on this machine that tunnels lead to; none is ever opened if not given. */
  readonly tunnel?: number
}

/** A proxy that forwards plain requests to one server and every tunnel to another, whatever host they name. */
export class ProxyServer extends Resource {
  /** What it was asked for, as in `CONNECT model.test:443`. */
  readonly seen: string[] = []
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor({ plain = '', tunnel }: Targets) {
    super()
    this.#server = createServer((request, response) => {
      this.seen.push(`${request.method} ${request.url}`)
      const { pathname } = new URL(request.url ?? '')
      const options = { method: request.method ?? 'POST', headers: request.headers }
      const onward = forward(plain + pathname, options, (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers).flushHeaders()
        answer.on('error', () => response.destroy()).pipe(response)
      })
      onward.on('error', () => response.destroy())
      response.on('close', () => onward.destroy())
      request.pipe(onward)
    })
    this.#server.on('connect', (request: IncomingMessage, client: Socket) => {
      this.seen.push(`CONNECT ${request.url}`)
      this.#keep(client)
      if (tunnel === undefined) return
      const onward = connect(tunnel, '127.0.0.1', () => {
        client.write('HTTP/1.1 200 OK\r\n\r\n')
        onward.pipe(client).pipe(onward)
      })
      this.#keep(onward)
    })
  }

  static async start(to: Targets): Promise<ProxyServer> {
    const proxy = new ProxyServer(to)
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve))
    return proxy
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => socket.destroy())
  }

  protected override async onClose(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
