import { readServerConfigs } from './read-server-configs.ts'
import type { ServerConfig } from './server-config.ts'
import type { Variables } from '../../../kit/index.ts'

type Servers = Readonly<Record<string, ServerConfig>>

/** The part of an environment that declares its tool servers. */
export interface ServersDeclared<Options> {
  readonly name: string
  readonly mcpServers?: Servers | ((options: Options) => Servers)
}

/** The tool servers of an environment, checked and with their variables filled in from `env`; none if it declares none. */
export function serverConfigsOf<Options>(
  environment: ServersDeclared<Options>,
  options: Options,
  env: Variables,
): Record<string, ServerConfig> {
  const { servers, where } = declaredServers(environment, options)
  return readServerConfigs(servers, where, env)
}

/** The servers as the environment declares them: not checked, nothing filled in. `where` names the place in messages. */
export function declaredServers<Options>(
  { name, mcpServers = {} }: ServersDeclared<Options>,
  options: Options,
): { readonly servers: Servers; readonly where: string } {
  const servers = typeof mcpServers === 'function' ? mcpServers(options) : mcpServers
  return { servers, where: `mcpServers of ${name}` }
}
