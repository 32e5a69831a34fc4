/** Rollouts that end at any point and in any way: what they held is given back, and no process is left. */
import { expect, test } from 'vitest'
import { MillraceError } from '../../src/errors/index.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import type { ServerConfig } from '../../src/tools/mcp/config/server-config.ts'
import { ToolServers } from '../../src/tools/mcp/sharing/tool-servers.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { isRunning } from '../support/tools/processes.ts'

const rollouts = 40
const ways = ['cancelled while it waits', 'cancelled in a call', 'crashes its server', 'throws', 'ends well'] as const

test('40 rollouts cancelled, failed or ended by exceptions at any point leave nothing behind', async () => {
  const before = activeResources()
  using log = new ServerLog()
  const command = misbehaving(log.mode, 'fork-grandchild')
  const configs: Record<string, ServerConfig> = {
    everybodys: { ...command, sharing: 'shared', reconnect: { max: 1_000, windowMs: 60_000 } },
    own: { ...command, pool: { warm: 1, max: 4, maxUses: 3 } },
  }
  const servers = new ToolServers({ servers: configs })
  const ends = await Promise.allSettled(Array.from({ length: rollouts }, (_, index) => rollout(servers, index)))
  const codes = ends.map((end) => (end.status === 'rejected' ? codeOf(end.reason) : 'well'))
  const ofWay = (way: (typeof ways)[number]): Set<string> =>
    new Set(codes.filter((_, index) => ways[index % ways.length] === way))
  expect(ofWay('cancelled while it waits')).toEqual(new Set(['cancelled']))
  expect(ofWay('crashes its server')).toEqual(new Set(['tool_infra']))
  // What everybody shares may be crashed by another one in the middle of a call.
  expect(
    Array.from(new Set(codes))
      .filter((code) => code !== 'well')
      .toSorted(),
  ).toEqual(['agent_failed', 'cancelled', 'tool_infra'])

  // After all that a rollout is served as if nothing had been.
  {
    await using lease = await servers.lease({ signal: new AbortController().signal })
    expect(lease.catalogues).toHaveLength(2)
  }
  await servers.close()
  const grandchildren = log.entries('grandchild').map(({ detail }) => Number(detail))
  const started = [...log.entries('start').map(({ pid }) => pid), ...grandchildren]
  expect(started.length).toBeGreaterThan(4)
  expect(started.filter(isRunning)).toEqual([])
  expect(await leftSince(before)).toEqual([])
})

async function rollout(servers: ToolServers, index: number): Promise<void> {
  const way = ways[index % ways.length]
  const controller = new AbortController()
  const { signal } = controller
  const cancel = (): void => controller.abort(new MillraceError('cancelled', 'enough'))
  const leasing = servers.lease({ signal })
  if (way === 'cancelled while it waits') cancel()
  await using lease = await leasing
  const server = index % 2 === 0 ? 'own' : 'everybodys'
  if (way === 'crashes its server') await lease.call(server, { tool: 'crash', arguments: {}, signal })
  // Its progress shows that it is in the middle of it.
  const onProgress = way === 'cancelled in a call' ? { onProgress: cancel } : {}
  await lease.call(server, { tool: 'sleep', arguments: { ms: 100 }, signal, ...onProgress })
  if (way === 'throws') throw new MillraceError('agent_failed', 'gave up')
  await lease.call('own', { tool: 'counter', arguments: {}, signal })
}

function codeOf(error: unknown): string {
  return error instanceof MillraceError ? error.code : String(error)
}
