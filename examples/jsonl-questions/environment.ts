import { join } from 'node:path'
import { commandReward, defineEnvironment, jsonl, z } from 'millrace'

const folder = import.meta.dirname

/** Questions from a file, read line by line, and scored by a program in whatever language you like. */
export default defineEnvironment({
  name: 'jsonl-questions',
  description: 'Arithmetic in words, from a JSONL file',
  task: z.object({ id: z.string(), question: z.string(), answer: z.number() }),
  tasks: () => jsonl(join(folder, 'questions.jsonl')),
  taskId: (task) => task.id,
  prompt: ({ task }) => `${task.question} End with a line \`Answer: <number>\`.`,
  reward: {
    // The program gets the task, the answer and the messages as JSON on its standard input, and prints the score.
    correct: commandReward({ command: ['node', 'score.mjs'], cwd: folder, timeoutMs: 30_000 }),
    hasAnswer: { weight: 0, score: ({ answer }) => answer.includes('Answer:') },
  },
})
