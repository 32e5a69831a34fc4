import type { ServerConfig } from './server-config.ts'

/**
 * The values that were filled in from variables when a configuration was read. Kept beside the configuration and not in it, since
 * code that shows or stores a configuration must not show them. An entry is freed with its configuration.
 */
const filledIn = new WeakMap<object, readonly string[]>()

export function rememberSecrets<Config extends ServerConfig>(config: Config, secrets: readonly string[]): Config {
  if (secrets.length > 0) filledIn.set(config, secrets)
  return config
}

export function secretsOf(config: object): readonly string[] {
  return filledIn.get(config) ?? []
}
