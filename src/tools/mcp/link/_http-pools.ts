import type * as Undici from 'undici'
import { descriptorBudget, poolTo, proxyFor, readAuthority } from '../../../inference/index.ts'
import { onFirstUse, processShare } from '../../../kit/index.ts'

const loadUndici = onFirstUse((load) => load('undici') as typeof Undici)

/** Requests to one origin at a time, from all sessions together; further ones wait, and the deadlines of calls run. */
const maxRequests = 1024
/** Each session may hold one stream on which its server speaks unasked. Past this, a session goes without until one ends. */
const maxStreams = 4096
const connectTimeoutMs = 10_000
/** Private authorities with pools of their own. Past this, the one unused longest has none, and is read again if it is asked for. */
const maxAuthorities = 32

/** Streams have their own connections, since those that stay open would otherwise leave none for calls. */
export interface HttpPools {
  readonly requests: Undici.Dispatcher
  readonly streams: Undici.Dispatcher
}

/** By the file of a private authority; in the order of their last use. */
const known = new Map<string | undefined, HttpPools>()

/**
 * The connections of this thread to servers over HTTP, through a proxy where the environment names one, for those who trust the
 * same. Nobody closes them: idle sockets do not keep a process alive, and undici ends them after seconds.
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
  // As much as all backends have is left for tools; a quarter of that remains for their processes and files.
  const left = descriptorBudget()
  return {
    requests: agent(Math.min(maxRequests, processShare(left / 2))),
    streams: agent(Math.min(maxStreams, processShare(left / 4))),
  }
}
