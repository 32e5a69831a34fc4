import { lookup as resolve } from 'node:dns'
import { BlockList, isIP, type LookupFunction } from 'node:net'
import { MillraceError } from '../../errors/index.ts'

/** Where no backend is: addresses of the machine's own link, such as those with a cloud's credentials, of groups, and of nobody. */
const neverNetworks = ['169.254.0.0/16', 'fe80::/10', 'fd00:ec2::/32', '224.0.0.0/4', 'ff00::/8', '0.0.0.0/8', '::/128']

/** Which addresses backends that are registered over HTTP may have: an admin's key must not open the gateway's own network. */
export class AddressGuard {
  readonly #refused = networksOf(neverNetworks)
  readonly #allowed: BlockList | undefined
  readonly #hosts: ReadonlySet<string>

  /** `allowBackends`: hosts, addresses or networks. If it is given, nothing else is allowed. */
  constructor(allowBackends?: readonly string[]) {
    const networks = allowBackends?.filter((entry) => isIP(entry.split('/', 1)[0] ?? '') > 0)
    this.#allowed = networks && networksOf(networks)
    this.#hosts = new Set(
      allowBackends?.filter((entry) => !networks?.includes(entry)).map((host) => host.toLowerCase()),
    )
  }

  /** Throws unless a backend may be at the url, also where its name leads to now. */
  async check(text: string): Promise<void> {
    const url = URL.parse(text)
    if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
      throw refused('a backend needs a url that begins with http:// or https://')
    }
    if (url.username || url.password) throw refused('a url must not have a password: send the key as apiKey')
    const host = hostOf(url)
    if (isIP(host) > 0) {
      if (!this.#allows(host, host)) throw notAllowed(host)
      return
    }
    const { promise, resolve: settle } = Promise.withResolvers<NodeJS.ErrnoException | null>()
    this.lookup(host, { all: true }, (error) => settle(error))
    const error = await promise
    if (error instanceof MillraceError) throw error
    // Whoever cannot be found cannot be reached either, and that is said when the backend is asked.
  }

  /** For connections: an address that a name leads to is checked each time, because it may lead elsewhere later. */
  readonly lookup: LookupFunction = (host, options, done) => {
    resolve(host, { ...options, all: true }, (error, addresses) => {
      if (error) return done(error, '')
      const bad = addresses.find(({ address }) => !this.#allows(host, address))
      if (bad) return done(notAllowed(`${host} (${bad.address})`), '')
      const [first] = addresses
      return options.all ? done(null, addresses) : done(null, first?.address ?? '', first?.family)
    })
  }

  #allows(host: string, address: string): boolean {
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    if (this.#allowed?.check(address, family)) return true
    if (this.#refused.check(address, family)) return false
    return this.#allowed === undefined || this.#hosts.has(host.toLowerCase())
  }
}

function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, '')
}

function networksOf(networks: readonly string[]): BlockList {
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', bits] = network.split('/')
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    if (bits === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(bits), family)
  }
  return list
}

function refused(message: string): MillraceError {
  return new MillraceError('usage', message, { data: { status: 400, param: 'url' } })
}

function notAllowed(where: string): MillraceError {
  return refused(
    `a backend must not be at ${where}: allowBackends in the gateway's file says which hosts and networks may be`,
  )
}
