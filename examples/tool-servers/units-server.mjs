/** Converts lengths: it keeps nothing, so all rollouts can share one. */
import { McpServer } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { z } from 'zod'

const inches = { inches: 1, feet: 12, yards: 36, chains: 792 }
const unit = z.enum(Object.keys(inches))

serveStdio(() => {
  const server = new McpServer({ name: 'units', version: '1.0.0' })
  server.registerTool(
    'convert',
    {
      description: 'A length in another unit.',
      inputSchema: z.object({ value: z.number(), from: unit, to: unit }),
      annotations: { readOnlyHint: true },
    },
    ({ value, from, to }) => ({ content: [{ type: 'text', text: String((value * inches[from]) / inches[to]) }] }),
  )
  return server
})
