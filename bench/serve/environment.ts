import { defineEnvironment, z } from 'millrace'

const instructions =
  'You work out arithmetic expressions in your head. Reply with one line and nothing else on it, in the form ' +
  '`Answer: <number>`. Do not explain, do not repeat the expression, do not add units, do not round. If the expression ' +
  'cannot be worked out, reply with `Answer: none`. The expression uses whole numbers only, and the usual order of ' +
  'operations: multiplication before addition, from left to right where both are equal.'

/** One turn and no tool, over a prompt of half a kilobyte. */
export const environment = defineEnvironment({
  name: 'serve-bench',
  task: z.object({ left: z.number(), right: z.number() }),
  tasks: () => [],
  prompt: ({ task }) => [
    { role: 'system', content: instructions },
    { role: 'user', content: `What is ${task.left} * ${task.right} + 1? Reply with \`Answer: <number>\`.` },
  ],
  reward: ({ task, answer }) => answer.includes(String(task.left * task.right + 1)),
})
