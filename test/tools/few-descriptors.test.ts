import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const fetchFile = join(import.meta.dirname, '..', '..', 'src', 'tools', 'mcp', 'link', 'server-fetch.ts')

/** More than such a process has descriptors, of each kind. */
const script = `
  import { serverFetch } from ${JSON.stringify(fetchFile)}
  const url = process.argv[1]
  const fetch = serverFetch({ name: 'few', url })
  const ask = (method) => fetch(url, { method }).then((response) => response.text(), (error) => String(error.cause ?? error))
  const replies = await Promise.all(Array.from({ length: 300 }, (_, index) => ask(index % 2 ? 'GET' : 'POST')))
  console.log([...new Set(replies)].join('\\n'))
`

test.runIf(process.platform === 'linux')('calls wait for a socket where descriptors are few', async () => {
  const server = createServer((_request, response) => response.end('answered'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const { port } = server.address() as AddressInfo
    const command = 'ulimit -n 128 && exec "$@"'
    const node = [process.execPath, '--input-type=module', '-e', script, `http://127.0.0.1:${port}/`]
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', command, 'sh', ...node])
    expect(stdout).toBe('answered\n')
  } finally {
    server.close()
    server.closeAllConnections()
  }
})
