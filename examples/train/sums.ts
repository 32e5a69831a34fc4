import { join } from 'node:path'
import { defineEnvironment, z } from 'millrace'

const number = z.number().int().min(0).max(19)

/** The sum of three numbers. The first turn has to call the tool for the first two, the second turn has to add the third. */
export default defineEnvironment({
  name: 'train',
  description: 'Sums of three numbers under 20, for a model that is trained from scratch',
  // A tool server writes its process id there, so that it can be killed.
  options: z.object({ pidFile: z.string().optional() }),
  task: z.object({ a: number, b: number, c: number }),

  *tasks() {
    for (let index = 3; index < 8000; index += 8) {
      yield { a: Math.floor(index / 400), b: Math.floor(index / 20) % 20, c: index % 20 }
    }
  },

  prompt: ({ task: { a, b, c } }) => `${a}+${b}+${c}=`,

  mcpServers: ({ pidFile }) => ({
    adder: {
      command: process.execPath,
      args: [join(import.meta.dirname, 'adder.mjs'), ...(pidFile === undefined ? [] : [pidFile])],
      sharing: 'shared',
      // However often it is killed, it is started again.
      reconnect: { max: 1000, windowMs: 60_000 },
    },
  }),

  // The answers of the model are short, and it has learned two turns.
  limits: { maxTurns: 2 },
  sampling: { temperature: 1, maxTokens: 20 },

  reward: {
    call: {
      weight: 0.5,
      score: ({ task: { a, b }, messages }) => {
        const reply = messages.find(({ role }) => role === 'assistant')
        const calls = reply?.role === 'assistant' ? (reply.tool_calls ?? []) : []
        return calls.length === 1 && calls[0]?.function.arguments === JSON.stringify({ a, b })
      },
    },
    answer: { weight: 0.5, score: ({ task: { a, b, c }, answer }) => answer === String(a + b + c) },
  },
})
