/** A repository with a bug. The answer is a patch, and hidden tests score it on a fresh copy. */
import { fileURLToPath } from 'node:url'
import { commandReward, defineEnvironment, external, z } from 'millrace'

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url))

export default defineEnvironment({
  name: 'patch',
  description: 'Mend a small repository; hidden tests score the patch',
  task: z.object({ rows: z.number(), seats: z.number() }),
  tasks: () => Array.from({ length: 100 }, (_, index) => ({ rows: 12 + (index % 10), seats: 20 + index })),

  prompt: ({ task: { rows, seats } }) => `ticketsLeft() in hall.mjs always returns 0, because \`seats\` is 0.
The hall has ${rows} rows of ${seats} seats each. What is ${rows} * ${seats}? End with a line \`Answer: <number>\`.`,

  // The program works on its own copy, and prints what it changed: `output` makes that the answer.
  agent: external({ command: ['node', path('agent.mjs')], env: { REPOSITORY: path('repository') }, answer: 'output' }),

  reward: {
    resolved: commandReward({ command: ['node', 'score.mjs'], cwd: path('.') }),
    changedLines: { weight: 0, score: ({ answer }) => answer.match(/^\+(?!\+\+)/gm)?.length ?? 0 },
  },
})
