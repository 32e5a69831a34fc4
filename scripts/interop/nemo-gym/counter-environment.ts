import { defineEnvironment, z } from 'millrace'

/** What NeMo Gym's example_session_state_mgmt is, as an environment: a counter for each rollout. */
export default defineEnvironment({
  name: 'counter',
  task: z.object({ initial_count: z.number(), expected_count: z.number() }),
  tasks: () => [],
  prompt: () => 'add 1',
  setup: ({ task }) => ({ count: task.initial_count }),
  tools: {
    increment_counter: {
      description: '',
      parameters: z.object({ count: z.number() }),
      run: ({ count }, { state }) => {
        state.count += count
        return '{"success":true}'
      },
    },
    get_counter_value: {
      description: '',
      parameters: z.object({}),
      run: (_, { state }) => JSON.stringify({ count: state.count }),
    },
    /** NeMo Gym's has none that fails. */
    break_counter: {
      description: '',
      parameters: z.object({}),
      run: () => {
        throw new Error('the counter is broken')
      },
    },
  },
  reward: ({ task, state }) => state.count === task.expected_count,
})
