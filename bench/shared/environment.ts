import { defineEnvironment, z } from 'millrace'

const instructions =
  'You work out arithmetic expressions. Use the calculator tool for every expression, even for one that looks easy: ' +
  'an answer that was not worked out with the tool counts as wrong. When the tool has answered, reply with one line ' +
  'and nothing else on it, in the form `Answer: <number>`. Do not explain, do not repeat the expression, do not add ' +
  'units. If the tool reports an error, correct the expression and try once more.'

/** Two turns and one tool call over a prompt of half a kilobyte. */
export default defineEnvironment({
  name: 'bench',
  task: z.object({ left: z.number(), right: z.number() }),
  async *tasks() {
    for (let index = 0; ; index += 1) yield { left: index % 997, right: (index * 7) % 991 }
  },
  prompt: ({ task }) => [
    { role: 'system', content: instructions },
    { role: 'user', content: `What is ${task.left} * ${task.right} + 1? Reply with \`Answer: <number>\`.` },
  ],
  tools: {
    calculator: {
      description: 'Works out an arithmetic expression.',
      parameters: z.object({ expression: z.string() }),
      resume: 'rerun',
      run: ({ expression }) => {
        const [left = 0, right = 0] = expression.match(/\d+/g)?.map(Number) ?? []
        return String(left * right + 1)
      },
    },
  },
  reward: ({ task, answer }) => answer.includes(String(task.left * task.right + 1)),
})
