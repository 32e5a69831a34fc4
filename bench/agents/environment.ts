import { defineEnvironment, z } from '../../src/index.ts'

const instructions =
  'You work out arithmetic expressions. Use the calculator tool for every expression, even for one that looks easy: ' +
  'an answer that was not worked out with the tool counts as wrong. When the tool has answered, reply with one line ' +
  'and nothing else on it, in the form `Answer: <number>`. Do not explain, do not repeat the expression, do not add units.'

const task = z.object({ left: z.number(), right: z.number() })

const prompt = ({ task: { left, right } }: { task: z.infer<typeof task> }) =>
  [
    { role: 'system', content: instructions },
    { role: 'user', content: `What is ${left} * ${right} + 1? Reply with \`Answer: <number>\`.` },
  ] as const

/** Two turns and one tool call with the tool loop, over a prompt of half a kilobyte. */
const toolLoop = defineEnvironment({
  name: 'agents-bench',
  task,
  tasks: () => [],
  prompt,
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
  reward: ({ task: { left, right }, answer }) => answer.includes(String(left * right + 1)),
})

/** No tool, and no answer is good: `refine` uses all its turns. */
const refine = defineEnvironment({
  name: 'agents-bench-refine',
  task,
  tasks: () => [],
  prompt,
  reward: () => 0,
  feedback: ({ answer }) => `${answer} is not right. Try again.`,
})

export const benchAgents = {
  toolLoop: { environment: toolLoop, agent: 'toolLoop' },
  refine: { environment: refine, agent: { name: 'refine', turns: 3 } },
} as const

export type BenchAgent = keyof typeof benchAgents
