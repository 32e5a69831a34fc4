import { headerSecrets, Redaction, urlSecrets, type Variables } from '../kit/index.ts'
import { proxyFor } from './http/proxy.ts'
import type { BackendConfig } from './model-config.ts'

/** The secrets in the config of a backend: its key, the values of all its headers, and those in its url. */
export function backendSecrets({ url, apiKeyEnv, headers }: BackendConfig, env: Variables): string[] {
  const parsed = URL.parse(url)
  const key = env[apiKeyEnv] ?? ''
  return [key, ...Object.values(headers).flatMap(headerSecrets), ...(parsed ? urlSecrets(parsed) : [])]
}

export interface KnownSecrets {
  /** Other secrets, such as values that were filled in from variables when a configuration was read. */
  readonly secrets?: readonly string[] | undefined
  /** The names of the model, which are no secrets, even if they were filled in. */
  readonly names?: readonly string[]
}

/** Takes a backend's secrets out of what it says: a server that refuses a request may repeat the headers that came with it. */
export function backendRedaction(
  backend: BackendConfig,
  env: Variables,
  { secrets = [], names = [] }: KnownSecrets,
): Redaction {
  const url = new URL(backend.url)
  const proxy = proxyFor(url, env)
  const others = withoutAddress(secrets, url).filter((value) => !names.some((name) => name.includes(value)))
  return new Redaction([
    ...backendSecrets(backend, env),
    ...(proxy === undefined ? [] : urlSecrets(new URL(proxy))),
    ...others,
  ])
}

/** The url of a backend as it is shown: without its query and password, and without secrets in its path. */
export function shownUrl(text: string, secrets: readonly string[] = []): string {
  const plain = text.replace(/\?.*$/, '').replace(/(?<=^|:\/\/)[^/]*@/, '')
  const url = URL.parse(text)
  return url ? new Redaction(withoutAddress(secrets, url)).text(plain) : plain
}

/** The values without the host and port of a url, which are shown: a message must say which server it is about. */
function withoutAddress(values: readonly string[], { host }: URL): string[] {
  return values
    .filter((value) => value !== '' && !host.includes(value.toLowerCase()))
    .map((value) => {
      const at = value.toLowerCase().indexOf(host)
      return at === -1
        ? value
        : value
            .slice(at + host.length)
            .replace(/\?.*$/, '')
            .replace(/\/+$/, '')
    })
}
