/** The environment that `millrace init` writes: the simulator can solve it, and it can be read in a minute. */
export function environmentTemplate(name: string): string {
  return `import { defineEnvironment, z } from 'millrace'

const operators: Record<string, (left: number, right: number) => number> = {
  '+': (left, right) => left + right,
  '*': (left, right) => left * right,
}

export default defineEnvironment({
  name: '${name}',
  task: z.object({ expression: z.string(), answer: z.number() }),
  tasks: () => Array.from({ length: 20 }, (_, i) => ({ expression: \`\${i + 3} * \${i + 7}\`, answer: (i + 3) * (i + 7) })),

  prompt: ({ task }) => \`What is \${task.expression}? Use the calculator. End with a line "Answer: <number>".\`,

  tools: {
    calculator: {
      description: 'The value of an expression such as 6 * 7 or 6 + 7.',
      parameters: z.object({ expression: z.string() }),
      run({ expression }) {
        const [, left, operator = '', right] = /^(\\d+) ([+*]) (\\d+)$/.exec(expression) ?? []
        // What a tool throws is shown to the model, which may try again.
        if (!operators[operator]) throw new Error(\`cannot work out \${expression}\`)
        return operators[operator](Number(left), Number(right))
      },
    },
  },

  reward: ({ task, answer }) => Number(/Answer:\\s*(-?\\d+)/.exec(answer)?.[1]) === task.answer,
})
`
}

/** A test of that environment, for Node's own test runner. */
export const testTemplate = `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { calls, runScripted } from 'millrace/testing'
import environment from './environment.ts'

await test('a model that reads the calculator is right', async () => {
  const { summary } = await runScripted({
    environment,
    limit: 3,
    // What the model says follows from the conversation: rollouts run at once, in no order.
    script: ({ messages }) => {
      const last = messages.at(-1)
      if (last?.role === 'tool') return \`Answer: \${last.content}\`
      return calls({ calculator: { expression: /What is (.+)\\?/.exec(String(last?.content))?.[1] } })
    },
  })
  assert.equal(summary.score?.mean, 1)
})
`

export const gitignoreTemplate = 'runs/\n'

export function readmeTemplate(name: string): string {
  return `# ${name}

An environment for [Millrace](https://www.npmjs.com/package/millrace): the tasks, the tools and the reward are in \`environment.ts\`.

    npx millrace eval ./environment.ts -m sim --sim.skill=0.8          # a simulated model: no key, no GPU
    npx millrace eval ./environment.ts -m <model> -n 4 --limit 20      # a model behind OPENAI_BASE_URL
    npx node --test environment.test.ts                                # its test, with a script for a model

Next: \`npx millrace show <run> 0-0\` reads a transcript, \`npx millrace eval --help\` explains every flag.
`
}

export function packageTemplate(name: string): string {
  return `${JSON.stringify({ name: name.toLowerCase(), private: true, type: 'module' }, undefined, 2)}\n`
}
