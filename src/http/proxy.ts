import { BlockList, isIP } from 'node:net'
import { MillraceError } from '../errors/index.ts'
import type { Variables } from '../kit/index.ts'

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
    `${name} is not a valid HTTP proxy URL. Write it like http://proxy.example.com:3128.`,
  )
}

function isLoopback(hostname: string): boolean {
  return (
    hostname === 'localhost' || hostname.endsWith('.localhost') || hostname === '[::1]' || hostname.startsWith('127.')
  )
}

function isExcepted(url: URL, list: string): boolean {
  return list.split(/[\s,]+/).some((entry) => entry !== '' && covers(entry.toLowerCase(), url))
}

/**
 * Whether an entry covers the host. `*` covers every host; `example.com`, `.example.com` and `*.example.com` cover the host
 * and all below it; `10.0.0.0/8` and `fd00::/8` the addresses in the network. Host names and addresses may have a port.
 */
function covers(entry: string, url: URL): boolean {
  if (entry === '*') return true
  const { host, port } = entryOf(entry)
  if (port !== undefined && port !== (url.port || (url.protocol === 'https:' ? '443' : '80'))) return false
  const address = url.hostname.replace(/^\[(.*)\]$/, '$1')
  if (isIP(address) !== 0) return isWithin(address, host)
  const suffix = host.replace(/^\*?\./, '')
  return url.hostname === suffix || url.hostname.endsWith(`.${suffix}`)
}

/** Splits an entry into host and port. The colons of an IPv6 address begin no port unless the address is in brackets. */
function entryOf(entry: string): { readonly host: string; readonly port: string | undefined } {
  const isBare = entry.indexOf(':') !== entry.lastIndexOf(':') && !entry.startsWith('[')
  if (isBare) return { host: entry, port: undefined }
  const [, bracketed, host = '', port] = /^(?:\[(.*)\]|(.*?))(?::(\d+))?$/.exec(entry) ?? []
  return { host: bracketed ?? host, port }
}

function isWithin(address: string, network: string): boolean {
  const [base = '', written] = network.split('/')
  const family = isIP(base)
  const most = family === 6 ? 128 : 32
  const bits = written === undefined ? most : Number(written || Number.NaN)
  if (family === 0 || !(Number.isInteger(bits) && bits >= 0 && bits <= most)) return false
  const addresses = new BlockList()
  addresses.addSubnet(base, bits, family === 6 ? 'ipv6' : 'ipv4')
  return addresses.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')
}
