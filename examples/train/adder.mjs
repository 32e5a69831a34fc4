/** Adds two numbers. It keeps nothing, so all rollouts can share one, and a call that was cut off can be repeated. */
import { writeFileSync } from 'node:fs'
import { McpServer } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { z } from 'zod'

const [, , pidFile] = process.argv
if (pidFile) writeFileSync(pidFile, String(process.pid))

serveStdio(() => {
  const server = new McpServer({ name: 'adder', version: '1.0.0' })
  server.registerTool(
    'add',
    {
      description: 'The sum of two numbers.',
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      annotations: { readOnlyHint: true },
    },
    ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }] }),
  )
  return server
})
