import type { ServerConfig } from './server-config.ts'

/**
 * What was filled in from variables when a configuration was read, beside the configuration and not in it: whatever shows
 * or stores a configuration must not show these. Goes with the configuration.
 */
const filledIn = new WeakMap<object, readonly string[]>()

export function rememberSecrets<Config extends ServerConfig>(config: Config, secrets: readonly string[]): Config {
  if (secrets.length > 0) filledIn.set(config, secrets)
  return config
}

export function secretsOf(config: object): readonly string[] {
  return filledIn.get(config) ?? []
}
