import { mkdtempDisposableSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { Semaphore } from '../../../kit/index.ts'
import { freePort } from '../../../../test/support/kit/free-port.ts'
import { HttpMcpServer } from '../../../../test/support/tools/http-mcp-server.ts'
import { calling } from '../../../../test/support/tools/session-with.ts'
import { codeOf, failureOf } from '../../../../test/support/inference/code-of.ts'
import { ProxyServer } from '../../../../test/support/inference/proxy-server.ts'
import { testCertificate } from '../../../../test/support/inference/test-certificate.ts'
import { readServerConfigs } from '../config/read-server-configs.ts'
import type { HttpServerConfig } from '../config/server-config.ts'
import { McpSession } from './mcp-session.ts'

const sessionOn = (config: HttpServerConfig): McpSession =>
  new McpSession({ name: 'web', config, starts: new Semaphore(1), onEvent: () => {} })

/** Lower-case names win, so these are set. Hosts differ from test to test, since a thread keeps its pools. */
function variables(given: Readonly<Record<string, string>>): Disposable {
  for (const [name, value] of Object.entries({ no_proxy: '', ...given })) vi.stubEnv(name, value)
  return { [Symbol.dispose]: () => void vi.unstubAllEnvs() }
}

function authority(): Disposable & { readonly caFile: string } {
  const folder = mkdtempDisposableSync(join(tmpdir(), 'millrace-ca-'))
  const caFile = join(folder.path, 'ca.pem')
  writeFileSync(caFile, testCertificate)
  return { caFile, [Symbol.dispose]: () => folder.remove() }
}

test('all requests to a remote server go through HTTP_PROXY', async () => {
  await using server = await HttpMcpServer.start()
  await using proxy = await ProxyServer.start({ plain: new URL(server.url).origin })
  using _variables = variables({ http_proxy: proxy.url })
  const url = 'http://far.test/mcp'
  await using session = sessionOn({ url })
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'hi in session-1' })
  await expect.poll(() => server.streams).toBe(1)
  await session.close()
  expect(server.ended).toEqual(['session-1'])
  const methods = proxy.seen.map((request) => request.replace(` ${url}`, ''))
  expect(methods.filter((method) => method === 'POST').length).toBeGreaterThanOrEqual(4)
  expect([...new Set(methods)].sort()).toEqual(['DELETE', 'GET', 'POST'])
})

test('the older transport uses the proxy as well', async () => {
  await using server = await HttpMcpServer.start()
  await using proxy = await ProxyServer.start({ plain: new URL(server.url).origin })
  using _variables = variables({ http_proxy: proxy.url })
  await using session = sessionOn({ type: 'sse', url: 'http://old.test/mcp' })
  // It does not speak that: what matters is that it was asked.
  expect(await codeOf(() => session.open())).toBe('tool_infra')
  expect(proxy.seen).toEqual(['GET http://old.test/mcp'])
})

test('a TLS server is reached through a tunnel, with its own authority', async () => {
  await using server = await HttpMcpServer.start({ isSecure: true })
  await using proxy = await ProxyServer.start({ tunnel: server.port })
  using _variables = variables({ https_proxy: proxy.url })
  using trusted = authority()
  await using session = sessionOn({ url: 'https://model.test/mcp', caFile: trusted.caFile })
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'hi in session-1' })
  expect(new Set(proxy.seen)).toEqual(new Set(['CONNECT model.test:443']))
  // Calls take up connections that are there, as they do without a proxy.
  await expect.poll(() => server.streams).toBe(1)
  const { length: tunnels } = proxy.seen
  for (let call = 0; call < 20; call += 1) await session.call(calling('echo'))
  expect(proxy.seen.length).toBeLessThan(tunnels + 20)
})

test('loopback addresses and NO_PROXY hosts are not reached through a proxy', async () => {
  await using server = await HttpMcpServer.start()
  await using proxy = await ProxyServer.start({})
  using _variables = variables({ http_proxy: proxy.url, no_proxy: 'near.test' })
  await using here = sessionOn({ url: server.url })
  expect(await here.call(calling('echo'))).toMatchObject({ content: 'hi in session-1' })
  await using near = sessionOn({ url: 'http://near.test/mcp' })
  expect(await codeOf(() => near.open())).toBe('tool_infra')
  expect(proxy.seen).toEqual([])
})

test('an unreachable proxy means that the call did not run, and an invalid proxy is refused', async () => {
  using _variables = variables({
    http_proxy: `http://127.0.0.1:${await freePort()}`,
    https_proxy: 'socks5://proxy.test',
  })
  await using gone = sessionOn({ url: 'http://gone.test/mcp' })
  expect(await failureOf(() => gone.call(calling('echo')))).toMatchObject({
    code: 'tool_infra',
    data: { mayHaveRun: false },
    rawMessage: expect.stringContaining('ECONNREFUSED'),
  })
  await using none = sessionOn({ url: 'https://none.test/mcp' })
  expect(String(await failureOf(() => none.open()))).toContain('https_proxy is not a valid HTTP proxy URL')
})

test('the error for an untrusted certificate names the solution; an invalid caFile is refused', async () => {
  await using server = await HttpMcpServer.start({ isSecure: true })
  await using stranger = sessionOn({ url: server.url })
  expect(String(await failureOf(() => stranger.open()))).toMatch(
    /certificate is not trusted .*caFile .*NODE_EXTRA_CA_CERTS/,
  )
  using trusted = authority()
  await using friend = sessionOn({ url: server.url, caFile: trusted.caFile })
  expect(await friend.call(calling('echo'))).toMatchObject({ content: 'hi in session-1' })
  const missing = { web: { url: server.url, caFile: `${trusted.caFile}.old` } }
  const error = await failureOf(() => readServerConfigs(missing, 'servers.json', {}))
  expect(error).toMatchObject({ code: 'config_invalid' })
  expect(String(error)).toContain('servers.json: web.caFile: the certificate authority')
})
