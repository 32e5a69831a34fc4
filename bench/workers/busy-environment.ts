import { defineEnvironment, z } from 'millrace'

/** What a rollout computes by itself, in the worker: parsing, scoring, a game's rules. */
const busyMs = 20

/** Two turns of a simulator, and 20 ms of CPU. */
export const environment = defineEnvironment({
  name: 'busy',
  task: z.object({ left: z.number(), right: z.number() }),
  *tasks() {
    for (let index = 0; ; index += 1) yield { left: index % 997, right: (index * 7) % 991 }
  },
  prompt: ({ task }) => `What is ${task.left} + ${task.right}? Reply with \`Answer: <number>\`.`,
  tools: {
    calculator: {
      description: 'Works out an arithmetic expression.',
      parameters: z.object({ expression: z.string() }),
      resume: 'rerun',
      run: ({ expression }) => String((expression.match(/\d+/g) ?? []).reduce((sum, text) => sum + Number(text), 0)),
    },
  },
  reward: ({ task, answer }) => {
    const startedAt = threadCpuMs()
    while (threadCpuMs() - startedAt < busyMs) answer.includes(String(task.left))
    return answer.includes(String(task.left + task.right))
  },
})

function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}
