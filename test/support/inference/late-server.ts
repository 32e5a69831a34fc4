import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

/** A port that breaks off every connection until there is a server behind it. Nobody else can take it meanwhile. */
export class LateServer implements AsyncDisposable {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #behind: number | undefined

  private constructor(server: Server) {
    this.#server = server
    server.on('connection', (socket: Socket) => this.#connect(socket))
  }

  static async start(): Promise<LateServer> {
    const server = createServer()
    await once(server.listen(0, '127.0.0.1'), 'listening')
    return new LateServer(server)
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`
  }

  /** From now on the server at this url answers. */
  put(url: string): void {
    this.#behind = Number(new URL(url).port)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #connect(socket: Socket): void {
    socket.on('error', () => {})
    if (this.#behind === undefined) {
      socket.destroy()
      return
    }
    const behind = connect(this.#behind, '127.0.0.1')
    behind.on('error', () => {})
    for (const [each, other] of [
      [socket, behind],
      [behind, socket],
    ] as const) {
      this.#sockets.add(each)
      each.on('close', () => {
        this.#sockets.delete(each)
        other.destroy()
      })
      each.pipe(other)
    }
  }
}
