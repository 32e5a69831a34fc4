/** A notebook: it keeps what it is told, so every rollout needs one of its own. */
import { McpServer } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { z } from 'zod'

const notes = []
const text = (said) => ({ content: [{ type: 'text', text: said }] })

serveStdio(() => {
  const server = new McpServer({ name: 'notes', version: '1.0.0' })
  server.registerTool(
    'add_note',
    { description: 'Writes a line into the notebook.', inputSchema: z.object({ note: z.string() }) },
    ({ note }) => text(`Note ${notes.push(note)} is written down.`),
  )
  server.registerTool(
    'search_notes',
    {
      description: 'The lines of the notebook with this text in them, in order.',
      inputSchema: z.object({ query: z.string() }),
      annotations: { readOnlyHint: true },
    },
    ({ query }) => text(notes.filter((note) => note.includes(query)).join('\n')),
  )
  return server
})
