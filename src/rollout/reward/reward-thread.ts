/** The entry of a reward thread: loads the environment once, then scores what it is sent. */
import { workerData } from 'node:worker_threads'
import { loadEnvironment, scoreOffloaded } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { dropStartVariables, deepCopy, serveJobs } from '../../kit/index.ts'
import type { EnvironmentModule, OffloadedWork } from './reward-pool.ts'

dropStartVariables()
const { specifier, options } = workerData as EnvironmentModule

await serveJobs<OffloadedWork, number | boolean>({
  errorCode: 'reward_failed',
  async start() {
    const loaded = await loadEnvironment(specifier, options).catch((error: unknown) => {
      throw MillraceError.from(error, 'env_load_failed')
    })
    return async ({ component, input }) => ({
      value: await scoreOffloaded(loaded.environment, component, { ...input, options: deepCopy(loaded.options) }),
    })
  },
})
