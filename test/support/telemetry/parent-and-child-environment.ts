import { defineEnvironment, z, type Message } from '../../../src/index.ts'
import { calls } from '../../../src/testing/index.ts'

/** A parent that calls a tool which works, one which fails, and one which starts a child that calls a tool itself. */
export const household = defineEnvironment({
  name: 'household',
  task: z.object({ name: z.string() }),
  tasks: () => [{ name: 'first' }, { name: 'second' }],
  prompt: () => 'Run the house.',
  tools: {
    note: { parameters: z.object({ text: z.string() }), run: ({ text }) => `noted ${text}` },
    fail: {
      parameters: z.object({}),
      run: () => {
        throw new Error('out of order')
      },
    },
    delegate: {
      parameters: z.object({}),
      run: async (_, { child }) => (await child({ prompt: 'Help out.', tools: ['note'] })).answer,
    },
  },
  reward: () => 0.5,
})

/** By content alone. */
export function answer(messages: readonly Message[]) {
  const isAnswered = messages.at(-1)?.role === 'tool'
  if (messages[0]?.content === 'Help out.') return isAnswered ? 'helped' : calls({ note: { text: 'secret words' } })
  return isAnswered ? 'all done' : calls({ note: { text: 'a' }, fail: {}, delegate: {}, invented: {} })
}
