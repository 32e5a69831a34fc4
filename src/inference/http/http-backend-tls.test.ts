import { mkdtempDisposableSync, writeFileSync } from 'node:fs'
import { createServer as createProxy, request as forward, type IncomingMessage } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { connect, type AddressInfo, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../_testing/code-of.ts'
import { ask, openBackend } from '../_testing/open-backend.ts'
import { ScriptedServer, chatReply, sendJson } from '../_testing/scripted-server.ts'
import { testCertificate, testCertificateKey } from '../_testing/test-certificate.ts'

describe('certificates and proxies', () => {
  test('an unknown authority is named as the reason; caFile makes it known', async () => {
    await using secure = await startTls()
    await using stranger = openBackend(secure.url)
    const error = await failureOf(() => stranger.send(ask()))
    expect(error).toMatchObject({ code: 'model_rejected' })
    expect(String(error)).toMatch(/caFile .*NODE_EXTRA_CA_CERTS/)
    using folder = mkdtempDisposableSync(join(tmpdir(), 'millrace-ca-'))
    const caFile = join(folder.path, 'ca.pem')
    writeFileSync(caFile, testCertificate)
    await using friend = openBackend(secure.url, { caFile })
    expect((await friend.send(ask())).message.content).toBe('secure')
    expect(await codeOf(() => openBackend(secure.url, { caFile: join(folder.path, 'none.pem') }))).toBe(
      'config_invalid',
    )
  })

  test('TLS where there is none', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('x')))
    await using backend = openBackend(server.url.replace('http:', 'https:'))
    const error = await failureOf(() => backend.send(ask()))
    expect(error).toMatchObject({ code: 'model_rejected' })
    expect(String(error)).toContain('http://')
  })

  test('HTTP_PROXY gets plain requests, HTTPS_PROXY a tunnel', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('plain')))
    await using secure = await startTls()
    await using proxy = await startProxy({ plain: server.origin, tunnel: secure.port })
    const env = { HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url }
    await using plain = openBackend('http://model.test/v1', { env })
    expect((await plain.send(ask())).message.content).toBe('plain')
    using folder = mkdtempDisposableSync(join(tmpdir(), 'millrace-ca-'))
    const caFile = join(folder.path, 'ca.pem')
    writeFileSync(caFile, testCertificate)
    await using tunnelled = openBackend('https://model.test/v1', { env, caFile })
    expect((await tunnelled.send(ask())).message.content).toBe('secure')
    expect(proxy.seen).toEqual(['POST http://model.test/v1/chat/completions', 'CONNECT model.test:443'])
    await using excepted = openBackend('http://model.test/v1', { env: { ...env, NO_PROXY: 'model.test' } })
    expect(await codeOf(() => excepted.send(ask()))).toBe('model_connect')
  })
})

async function startTls(): Promise<AsyncDisposable & { url: string; port: number }> {
  const server = createTlsServer({ cert: testCertificate, key: testCertificateKey }, (request, response) => {
    request.resume()
    sendJson(response, chatReply('secure'))
  })
  const port = await listening(server)
  return { url: `https://127.0.0.1:${port}/v1`, port, [Symbol.asyncDispose]: () => shut(server) }
}

/** Forwards plain requests to one server and every tunnel to another, whatever host they name. */
async function startProxy(to: {
  plain: string
  tunnel: number
}): Promise<AsyncDisposable & { url: string; seen: string[] }> {
  const seen: string[] = []
  const sockets = new Set<Socket>()
  const server = createProxy((request, response) => {
    seen.push(`${request.method} ${request.url}`)
    const { pathname } = new URL(request.url ?? '')
    const onward = forward(
      to.plain + pathname,
      { method: request.method ?? 'POST', headers: request.headers },
      (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers)
        answer.pipe(response)
      },
    )
    request.pipe(onward)
  })
  server.on('connect', (request: IncomingMessage, client: Socket) => {
    seen.push(`CONNECT ${request.url}`)
    const onward = connect(to.tunnel, '127.0.0.1', () => {
      client.write('HTTP/1.1 200 OK\r\n\r\n')
      onward.pipe(client).pipe(onward)
    })
    for (const socket of [client, onward]) {
      sockets.add(socket)
      socket.on('error', () => socket.destroy())
    }
  })
  const port = await listening(server)
  return {
    url: `http://127.0.0.1:${port}`,
    seen,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy()
      await shut(server)
    },
  }
}

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

async function shut(server: Server & { closeAllConnections?: () => void }): Promise<void> {
  server.closeAllConnections?.()
  await new Promise((resolve) => server.close(resolve))
}
