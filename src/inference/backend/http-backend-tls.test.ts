import { mkdtempDisposableSync, writeFileSync } from 'node:fs'
import { createServer as createProxy, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo, Server, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { ask, openBackend } from '../../../test/support/inference/open-backend.ts'
import { ProxyServer } from '../../../test/support/inference/proxy-server.ts'
import { ScriptedServer, chatReply, sendJson } from '../../../test/support/inference/scripted-server.ts'
import { testCertificate, testCertificateKey } from '../../../test/support/inference/test-certificate.ts'

describe('certificates and proxies', () => {
  test('an unknown authority is named as the reason, and caFile makes it known', async () => {
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

  test('TLS to a server without TLS fails with a clear reason', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('x')))
    await using backend = openBackend(server.url.replace('http:', 'https:'))
    const error = await failureOf(() => backend.send(ask()))
    expect(error).toMatchObject({ code: 'model_rejected' })
    expect(String(error)).toContain('http://')
  })

  test('HTTP_PROXY gets plain requests, HTTPS_PROXY a tunnel', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('plain')))
    await using secure = await startTls()
    await using proxy = await ProxyServer.start({ plain: server.origin, tunnel: secure.port })
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

  test('requests through a proxy do not exceed the connection limit', async () => {
    const held: ServerResponse[] = []
    await using server = await ScriptedServer.start((response) => void held.push(response))
    await using proxy = await ProxyServer.start({ plain: server.origin })
    const options = { connections: 2 }
    await using backend = openBackend('http://model.test/v1', { env: { HTTP_PROXY: proxy.url }, options })
    const replies = Array.from({ length: 5 }, () => backend.send(ask()))
    let most = 0
    for (let answered = 0; answered < replies.length; answered += 1) {
      await expect.poll(() => held.length).toBeGreaterThan(0)
      // Those that are not held back get there together.
      await expect.poll(() => proxy.seen.length).toBe(Math.min(answered + 2, replies.length))
      most = Math.max(most, held.length)
      sendJson(held.shift() as ServerResponse, chatReply('x'))
    }
    await Promise.all(replies)
    expect(most).toBe(2)
  })

  test('a proxy that requires authentication is named in the error and not asked again', async () => {
    const refusing = createProxy((request, response) => {
      request.resume()
      response.writeHead(407).end()
    })
    refusing.on('connect', (_request, client: Socket) =>
      client.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n'),
    )
    const proxy = `http://127.0.0.1:${await listening(refusing)}`
    await using _refusing = { [Symbol.asyncDispose]: () => shut(refusing) }
    for (const scheme of ['http', 'https']) {
      const env = { HTTP_PROXY: proxy, HTTPS_PROXY: proxy }
      await using backend = openBackend(`${scheme}://model.test/v1`, { env })
      const error = await failureOf(() => backend.send(ask()))
      expect(error).toMatchObject({ code: 'model_rejected' })
      expect(String(error)).toMatch(/proxy .*407.*HTTPS_PROXY or HTTP_PROXY/)
    }
  })

  test('a proxy that never opens the tunnel fails like a server that accepts no connection', async () => {
    await using proxy = await ProxyServer.start({})
    const env = { HTTPS_PROXY: proxy.url }
    await using backend = openBackend('https://model.test/v1', { env, connectTimeoutMs: 100 })
    expect(await codeOf(() => backend.send(ask()))).toBe('model_connect')
    expect(proxy.seen).toEqual(['CONNECT model.test:443'])
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

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

async function shut(server: Server & { closeAllConnections?: () => void }): Promise<void> {
  server.closeAllConnections?.()
  await new Promise((resolve) => server.close(resolve))
}
