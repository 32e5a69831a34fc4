import { defineEnvironment, z } from 'millrace'
import { evaluateExpression } from '../arithmetic/expression.ts'
import { makeExpression } from '../arithmetic/tasks.ts'

/** Child rollouts: the agent hands out parts of its task, and each helper works with the same calculator. */
export default defineEnvironment({
  name: 'delegate',
  description: 'Add up expressions that helpers work out in parallel',
  options: z.object({
    count: z.coerce.number().int().positive().default(50),
    parts: z.coerce.number().int().min(2).max(10).default(3),
  }),
  task: z.object({ expressions: z.array(z.string()), answer: z.number() }),

  *tasks({ count, parts }) {
    for (let index = 0; index < count; index += 1) {
      const expressions = Array.from({ length: parts }, (_, part) => makeExpression(index * parts + part + 1, 1))
      yield { expressions, answer: expressions.reduce((sum, expression) => sum + evaluateExpression(expression), 0) }
    }
  },

  prompt: ({ task }) => `Give each of these expressions to a helper, all at once, and add up what they find:
${task.expressions.map((expression) => `- ${expression}`).join('\n')}
End with a line \`Answer: <number>\`.`,

  tools: {
    calculator: {
      description: 'The value of an arithmetic expression: numbers, + - * / and parentheses.',
      parameters: z.object({ expression: z.string() }),
      resume: 'rerun',
      run: ({ expression }) => evaluateExpression(expression),
    },
    delegate: {
      description: 'Gives a task to a helper who has a calculator, and returns the last line of the answer.',
      parameters: z.object({ task: z.string() }),
      run: async ({ task }, context) => {
        const helper = await context.child({ prompt: task, tools: ['calculator'], limits: { maxTurns: 5 } })
        if (helper.outcome !== 'completed') throw new Error(`the helper ended with ${helper.outcome}`)
        return helper.answer.trim().split('\n').at(-1)
      },
    },
  },

  reward: ({ task, answer }) => Number(/Answer:\s*(-?[\d.]+)/.exec(answer)?.[1]) === task.answer,
})
