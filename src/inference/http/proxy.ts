import { MillraceError } from '../../errors/index.ts'
import type { Variables } from '../../kit/index.ts'
import { isExcepted } from './_no-proxy.ts'

const schemes: ReadonlySet<string> = new Set(['http:', 'https:'])

/**
 * The proxy that the environment names for a url, if any: HTTPS_PROXY or HTTP_PROXY by the url's scheme, unless NO_PROXY
 * covers the host. The lower-case names win, as in curl. This machine itself is never reached through a proxy, because
 * inference servers and tool servers run beside us on machines where a proxy is set for everything else.
 */
export function proxyFor(url: URL, env: Variables): string | undefined {
  const lower = url.protocol === 'https:' ? 'https_proxy' : 'http_proxy'
  const name = env[lower] ? lower : lower.toUpperCase()
  const proxy = env[name]
  if (!proxy || isLoopback(url.hostname)) return undefined
  return isExcepted(url, env['no_proxy'] || env['NO_PROXY'] || '') ? undefined : proxyUrl(name, proxy)
}

/** Checks the url of a proxy. `http://` may be left out, as with other programs. */
function proxyUrl(name: string, value: string): string {
  const url = URL.parse(/^[a-z][a-z\d+.-]*:\/\//i.test(value) ? value : `http://${value}`)
  if (url && schemes.has(url.protocol)) return url.href
  // The value is not quoted, because there may be a password in it.
  throw new MillraceError(
    'config_invalid',
    `${name} is no url of an HTTP proxy. Write it like http://proxy.example.com:3128.`,
  )
}

function isLoopback(hostname: string): boolean {
  return (
    hostname === 'localhost' || hostname.endsWith('.localhost') || hostname === '[::1]' || hostname.startsWith('127.')
  )
}
