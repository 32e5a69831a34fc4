import type { Variables } from '../../kit/index.ts'

/**
 * The proxy that the environment names for a url, if any: HTTPS_PROXY or HTTP_PROXY by the url's scheme, unless NO_PROXY
 * covers the host. The lower-case names win, as in curl. This machine itself is never reached through a proxy, because
 * inference servers run beside us on machines where a proxy is set for everything else.
 */
export function proxyFor(url: URL, env: Variables): string | undefined {
  const name = url.protocol === 'https:' ? 'https_proxy' : 'http_proxy'
  const proxy = env[name] || env[name.toUpperCase()]
  if (!proxy || isLoopback(url.hostname)) return undefined
  const exceptions = env['no_proxy'] || env['NO_PROXY'] || ''
  const isExcepted = exceptions.split(/[\s,]+/).some((entry) => entry !== '' && covers(entry.toLowerCase(), url))
  return isExcepted ? undefined : proxy
}

function isLoopback(hostname: string): boolean {
  return (
    hostname === 'localhost' || hostname.endsWith('.localhost') || hostname === '[::1]' || hostname.startsWith('127.')
  )
}

/** `*`, `example.com`, `.example.com` and `*.example.com` (with or without a port) also cover what is below them. */
function covers(entry: string, url: URL): boolean {
  if (entry === '*') return true
  const [, host = '', port] = /^(.*?)(?::(\d+))?$/.exec(entry) ?? []
  if (port !== undefined && port !== (url.port || (url.protocol === 'https:' ? '443' : '80'))) return false
  const suffix = host.replace(/^\*?\./, '')
  return url.hostname === suffix || url.hostname.endsWith(`.${suffix}`)
}
