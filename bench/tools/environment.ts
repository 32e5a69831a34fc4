import { defineEnvironment, z } from 'millrace'
import { npmServers } from './servers.ts'

/** What each rollout asks of the three servers, one after the other. */
const questions = [
  ['echo', { message: 'mill' }],
  ['list_directory', { path: import.meta.dirname }],
  ['read_graph', {}],
] as const

let waiting = 0
const { promise: allAreThere, resolve: openGate } = Promise.withResolvers<void>()

/** Rollouts that each use three shared servers, and wait in the middle until all of them are there. No model is asked. */
export default defineEnvironment({
  name: 'three-servers',
  options: z.object({ rollouts: z.coerce.number() }),
  task: z.object({}),
  tasks: ({ rollouts }) => Array.from({ length: rollouts }, () => ({})),
  prompt: ({ options }) => String(options.rollouts),
  mcpServers: {
    everything: { ...npmServers.everything, sharing: 'shared' },
    filesystem: { ...npmServers.filesystem, sharing: 'shared' },
    memory: { ...npmServers.memory, sharing: 'shared' },
  },
  agent: async ({ tools, append, messages }) => {
    const ask = async (): Promise<void> => {
      for (const [name, given] of questions) {
        const call = { id: name, type: 'function', function: { name, arguments: JSON.stringify(given) } } as const
        append(...(await tools.call([call])))
      }
    }
    await ask()
    waiting += 1
    if (waiting === Number(messages[0]?.content)) openGate()
    await allAreThere
    await ask()
  },
  reward: ({ messages }) => messages.filter(({ role }) => role === 'tool').length / (2 * questions.length),
})
