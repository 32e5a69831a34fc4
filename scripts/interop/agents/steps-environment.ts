import { defineEnvironment, z } from 'millrace'

/** What a coding agent is told to do in its folder. The simulator does it, and says the last line of the last output. */
export default defineEnvironment({
  name: 'steps',
  task: z.object({ steps: z.string(), says: z.string() }),
  tasks: () =>
    ['one', 'two', 'three', 'four'].map((word) => ({
      steps: [
        `Run \`echo ${word} > a.txt\` and \`echo more > b.txt\``,
        'Run `cat b.txt a.txt > c.txt`',
        'Run `cat c.txt`',
      ].join('\n'),
      says: word,
    })),
  prompt: ({ task }) => `Do this.\n${task.steps}`,
  reward: ({ task, answer }) => answer.includes(task.says),
})
