import { defineEnvironment, z } from 'millrace'

const nobody = new Int32Array(new SharedArrayBuffer(4))

/** Its setup holds up the thread it runs on, for as long as the task says. */
export const environment = defineEnvironment({
  name: 'blocking',
  task: z.object({ blockMs: z.number() }),
  tasks: () => [],
  setup: ({ task }) => void Atomics.wait(nobody, 0, 0, task.blockMs),
  prompt: () => 'What is 1 + 1? Reply with `Answer: <number>`.',
  reward: () => 1,
})
