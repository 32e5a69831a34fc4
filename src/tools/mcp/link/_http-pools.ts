import type * as Undici from 'undici'
import { descriptorBudget, poolTo, proxyFor, readAuthority } from '../../../inference/index.ts'
import { onFirstUse, processShare } from '../../../kit/index.ts'

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

/** Requests to one origin at a time, from all sessions together; further ones wait while the deadlines of their calls run. */
const maxRequests = 1024
/** Each session may hold one stream on which its server speaks unasked. Beyond this, a session goes without until one ends. */
const maxStreams = 4096
const connectTimeoutMs = 10_000
/**
 * How many private authorities have pools of their own. Beyond this, the pools unused longest are dropped, and made again when
 * needed.
 */
const maxAuthorities = 32

/** Streams have their own connections, since open streams would otherwise leave none for calls. */
export interface HttpPools {
  readonly requests: Undici.Dispatcher
  readonly streams: Undici.Dispatcher
}

/** The pools by the file of a private authority; in the order of their last use. */
const known = new Map<string | undefined, HttpPools>()

/**
 * The connections of this thread to servers over HTTP, through a proxy where the environment names one, shared by all that trust
 * the same authority. Nobody closes them: idle sockets do not keep a process alive, and undici ends them after seconds.
 */
export function httpPools(caFile: string | undefined): HttpPools {
  const pools = known.get(caFile) ?? openPools(caFile)
  known.delete(caFile)
  known.set(caFile, pools)
  if (known.size > maxAuthorities) known.delete([...known.keys()][0])
  return pools
}

function openPools(caFile: string | undefined): HttpPools {
  const { Agent } = loadUndici()
  const authority = caFile === undefined ? undefined : readAuthority(caFile)
  const agent = (connections: number): Undici.Dispatcher =>
    new Agent({
      factory(target) {
        const url = new URL(target)
        const proxy = proxyFor(url, process.env)
        return poolTo({ origin: url.origin, proxy, connections, connectTimeoutMs, authority })
      },
    })
  // Tools may use as many descriptors as all backends together; a quarter of them remains for processes and files.
  const left = descriptorBudget()
  return {
    requests: agent(Math.min(maxRequests, processShare(left / 2))),
    streams: agent(Math.min(maxStreams, processShare(left / 4))),
  }
}
