import { defineEnvironment, z } from 'millrace'
import { evaluateExpression } from './expression.ts'
import { arithmeticTasks } from './tasks.ts'

/** Expressions to work out with a calculator: `millrace eval arithmetic --env.difficulty=4`. */
export default defineEnvironment({
  name: 'arithmetic',
  description: 'Arithmetic with a calculator tool',
  options: z.object({
    count: z.coerce.number().int().positive().default(200),
    difficulty: z.coerce.number().int().min(1).max(5).default(2),
  }),
  task: z.object({ expression: z.string(), answer: z.number() }),
  tasks: arithmeticTasks,

  prompt: ({ task }) => `What is ${task.expression}? Use the calculator, and end with a line \`Answer: <number>\`.`,

  tools: {
    calculator: {
      description: 'The value of an arithmetic expression: numbers, + - * / and parentheses.',
      parameters: z.object({ expression: z.string() }),
      resume: 'rerun',
      run: ({ expression }) => evaluateExpression(expression),
    },
  },

  reward: {
    correct: ({ task, answer }) => Number(/Answer:\s*(-?[\d.]+)/.exec(answer)?.[1]) === task.answer,
    // Weight 0: not part of the reward, but shown with it.
    usedTool: { weight: 0, score: ({ messages }) => messages.some((message) => message.role === 'tool') },
  },
})
