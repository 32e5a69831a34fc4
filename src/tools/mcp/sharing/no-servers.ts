import { MillraceError } from '../../../errors/index.ts'
import type { ServerCalls } from './tool-servers-contract.ts'

/** The servers of a rollout that has none. */
export const noServers: ServerCalls = {
  call: (server) => {
    const message = `there is no tool server "${server}": the environment has no \`mcpServers\``
    return Promise.reject(new MillraceError('env_invalid', message))
  },
}
