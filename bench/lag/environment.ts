import { defineEnvironment, z } from 'millrace'

/** A conversation of so many turns, in which nothing is computed. */
export default defineEnvironment({
  name: 'lag',
  task: z.object({ number: z.number() }),
  options: z.object({ turns: z.number() }),
  async *tasks() {
    for (let number = 0; ; number += 1) yield { number }
  },
  limits: { maxTurns: 1_000 },
  setup: () => ({ turns: 0 }),
  prompt: ({ task }) => `Begin with number ${task.number}.`,
  update: ({ state, options }) => {
    state.turns += 1
    return state.turns < options.turns ? { messages: [{ role: 'user', content: 'Go on.' }] } : { end: true }
  },
  reward: () => 1,
})
