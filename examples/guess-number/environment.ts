import { defineEnvironment, z } from 'millrace'

/** A stateful environment: each rollout has its own secret number, and ends by itself once it is found. */
export default defineEnvironment({
  name: 'guess-number',
  description: 'Find a hidden number; every guess is answered with higher or lower',
  options: z.object({
    count: z.coerce.number().int().positive().default(100),
    high: z.coerce.number().int().min(2).default(100),
  }),
  task: z.object({ low: z.number(), high: z.number() }),
  tasks: ({ count, high }) => Array.from({ length: count }, () => ({ low: 1, high })),

  setup: ({ task, rollout }) => ({
    // From the rollout's seed, not from Math.random(): a rollout that is resumed has the same secret.
    secret: task.low + (Math.abs(rollout.seed) % (task.high - task.low + 1)),
    guesses: 0,
    isFound: false,
  }),

  prompt: ({ task }) =>
    `I think of a whole number between ${task.low} and ${task.high}. Find it with as few guesses as you can.`,

  tools: {
    guess: {
      description: 'Guesses the number; says whether it is higher, lower, or correct.',
      parameters: z.object({ number: z.number().int() }),
      // One at a time, in the order in which the model asked.
      exclusive: true,
      resume: 'rerun',
      run: ({ number }, { state }) => {
        state.guesses += 1
        if (number === state.secret) {
          state.isFound = true
          return 'correct'
        }
        return number < state.secret ? 'higher' : 'lower'
      },
    },
  },

  update: ({ state }) => ({ end: state.isFound }),

  /** All of it for no more guesses than halving the range takes, less for each one more. */
  reward: (context) => {
    const { task, state } = context
    context.metric('guesses', state.guesses)
    const par = Math.ceil(Math.log2(task.high - task.low + 2))
    return state.isFound ? Math.min(1, par / state.guesses) : 0
  },
})
