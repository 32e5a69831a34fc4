/** Sums that a Python program solves, with the model of the rollout and a tool of its own. */
import { fileURLToPath } from 'node:url'
import { defineEnvironment, external } from 'millrace'
import arithmetic from '../arithmetic/environment.ts'

const script = fileURLToPath(new URL('agent.py', import.meta.url))

export default defineEnvironment({
  ...arithmetic,
  name: 'external',
  // The program brings its own tool.
  tools: {},
  agent: external({ command: ['python3', script] }),
})
