import { join } from 'node:path'
import { defineEnvironment, z } from 'millrace'

const server = (file: string) => ({ command: process.execPath, args: [join(import.meta.dirname, file)] })
const inches = { feet: 12, yards: 36, chains: 792 }
const units = ['feet', 'yards', 'chains'] as const

/** Tools that live in other programs: one server for all rollouts, and one for each. */
export default defineEnvironment({
  name: 'tool-servers',
  description: 'Convert lengths, note them down, and add them up, with the tools of two MCP servers',
  options: z.object({ count: z.coerce.number().int().positive().default(50) }),
  task: z.object({ lengths: z.array(z.object({ value: z.number(), unit: z.enum(units) })), answer: z.number() }),

  *tasks({ count }) {
    for (let index = 0; index < count; index += 1) {
      const lengths = units.map((unit, at) => ({ value: 2 + ((index * 7 + at * 5) % 11), unit }))
      yield { lengths, answer: lengths.reduce((sum, { value, unit }) => sum + value * inches[unit], 0) }
    }
  },

  prompt: ({ task }) => `Convert each of these lengths to inches and write each result into your notebook:
${task.lengths.map(({ value, unit }) => `- ${value} ${unit}`).join('\n')}
Then look your notes up, add them up, and end with a line \`Answer: <number>\`.`,

  mcpServers: {
    units: { ...server('units-server.mjs'), sharing: 'shared' },
    // A process for each rollout, started before it is needed: it knows nothing of the others' notes.
    notebook: { ...server('notes-server.mjs'), sharing: 'pooled', pool: { warm: 2, max: 8 } },
  },

  reward: {
    correct: ({ task, answer }) => Number(/Answer:\s*(-?[\d.]+)/.exec(answer)?.[1]) === task.answer,
    // The rollout's servers are still open, and can be asked what they were told.
    noted: {
      weight: 0,
      score: async ({ task, servers, signal }) => {
        const { content } = await servers.call('notebook', { tool: 'search_notes', arguments: { query: '' }, signal })
        return typeof content === 'string' && content.split('\n').length === task.lengths.length
      },
    },
  },
})
