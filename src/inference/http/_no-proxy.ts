import { BlockList, isIP } from 'node:net'

/** Whether a list like that in NO_PROXY covers the host of a url. Its entries are separated by commas, spaces or both. */
export function isExcepted(url: URL, list: string): boolean {
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

/** Whether an address equals `network`, or is in it. */
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
