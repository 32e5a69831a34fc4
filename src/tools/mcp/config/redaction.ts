import { headerSecrets, Redaction, urlSecrets } from '../../../kit/index.ts'
import { secretsOf } from './config-secrets.ts'
import type { ServerConfig } from './server-config.ts'

/**
 * Keeps a server's secrets out of errors and events: values that came from variables, wherever they were put; all headers and
 * variables of the server, whatever their names; and credentials and parameters in its URL.
 */
export function redactionOf(config: ServerConfig): Redaction {
  const given =
    'url' in config
      ? [...Object.values(config.headers ?? {}).flatMap(headerSecrets), ...urlSecrets(new URL(config.url))]
      : Object.values(config.env ?? {})
  return new Redaction([...secretsOf(config), ...given])
}
