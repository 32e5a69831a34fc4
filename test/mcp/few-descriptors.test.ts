import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const script = join(import.meta.dirname, '..', 'fixtures', 'mcp', 'many-requests.ts')

test.runIf(process.platform === 'linux')('calls wait for a socket if descriptors are scarce', async () => {
  const server = createServer((_request, response) => response.end('answered'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const { port } = server.address() as AddressInfo
    const command = 'ulimit -n 128 && exec "$@"'
    const node = [process.execPath, script, `http://127.0.0.1:${port}/`]
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', command, 'sh', ...node])
    expect(stdout).toBe('answered\n')
  } finally {
    server.close()
    server.closeAllConnections()
  }
})
