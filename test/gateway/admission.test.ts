import { SimulatorServer } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { Agent, request } from 'undici'
import { expect, test } from 'vitest'
import { authorized, startCrampedGateway } from '../support/gateway/gateway-process.ts'

/** 960 sockets beyond the reserve, half of them for the backend; an eighth of the others is for those who find no room. */
const descriptors = 1024
const [room, crowdSize] = [420, 470]
const body = JSON.stringify({ model: 'sim-7b', stream: true, messages: [{ role: 'user', content: 'hello' }] })

async function tally(url: string, clients: number): Promise<Map<number | string, number>> {
  await using ends = new AsyncDisposableStack()
  const agent = ends.adopt(new Agent({ connections: null }), (each) => each.destroy())
  const counts = new Map<number | string, number>()
  await Promise.all(
    Array.from({ length: clients }, async () => {
      const outcome = await ask(agent, url)
      counts.set(outcome, (counts.get(outcome) ?? 0) + 1)
    }),
  )
  return counts
}

async function ask(dispatcher: Agent, url: string): Promise<number | string> {
  try {
    const reply = await request(`${url}/v1/chat/completions`, {
      dispatcher,
      method: 'POST',
      headers: authorized(),
      body,
    })
    const text = await reply.body.text()
    if (reply.statusCode === 503) return reply.headers['retry-after'] === '1' ? 503 : 'no retry-after'
    return reply.statusCode !== 200 || text.endsWith('data: [DONE]\n\n') ? reply.statusCode : `cut off: ${text}`
  } catch (error) {
    return String(error)
  }
}

test(
  'all clients get an answer, also if there are more clients than file descriptors',
  { timeout: 120_000 },
  async () => {
    await using runs = await temporaryRuns()
    await using simulator = await SimulatorServer.start({ ttftMs: 2_000 })
    await using gateway = await startCrampedGateway(runs.root, descriptors, '--backend', simulator.url, '-m', 'sim-7b')
    // As many as there is room for: those that find no connection to the backend wait for one.
    expect(await tally(gateway.url, 300)).toEqual(new Map([[200, 300]]))
    await expect.poll(() => connections(gateway.url)).toBe(1)
    const crowd = await tally(gateway.url, crowdSize)
    expect(new Set(crowd.keys())).toEqual(new Set([200, 503]))
    expect((crowd.get(200) ?? 0) + (crowd.get(503) ?? 0)).toBe(crowdSize)
    expect(crowd.get(200)).toBeGreaterThanOrEqual(room)
    // And afterwards there is room again.
    await expect.poll(() => tally(gateway.url, 100), { timeout: 30_000 }).toEqual(new Map([[200, 100]]))
  },
)

/** That of whoever asks included. */
async function connections(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`, { headers: { ...authorized(), connection: 'close' } })).text()
  return Number(/^millrace_gateway_connections (\d+)$/m.exec(text)?.[1])
}
