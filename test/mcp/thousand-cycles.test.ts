import { randomInt } from 'node:crypto'
import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { ToolServers } from '../../src/tools/mcp/sharing/tool-servers.ts'
import { misbehaving, ServerLog } from '../fixtures/mcp/misbehaving.ts'
import { liveDescendants, openDescriptors, survivors } from '../support/tools/processes.ts'
import { Troublemaker, type Tally } from '../support/tools/random-sessions.ts'

/** How many listen to each event of this process, signals among them. */
const processListeners = (): Record<string, number> =>
  Object.fromEntries(process.eventNames().map((name) => [String(name), process.listenerCount(name)]))

test(
  '1,000 opens, crashes, cancels and closes leave no process, descriptor, timer or listener',
  { timeout: 300_000 },
  async () => {
    const seed = randomInt(2 ** 31)
    const because = `with the seed ${seed}`
    const outer = new AbortController()
    const tally: Tally = { open: 0, crash: 0, cancel: 0, close: 0 }
    const troublemaker = (number: number) => new Troublemaker({ seed, number, tally, outer: outer.signal })
    using log = new ServerLog()
    // What Node opens once and keeps is there before anything is counted.
    await troublemaker(0).session([log.mode])
    const before = {
      processes: liveDescendants(),
      descriptors: openDescriptors(),
      resources: activeResources(),
      listeners: processListeners(),
    }
    const servers = new ToolServers({
      servers: {
        own: { ...misbehaving(log.mode), onRestart: 'tell', pool: { max: 3, maxUses: 3 } },
        everybodys: { ...misbehaving(log.mode), sharing: 'shared', reconnect: { max: 1, windowMs: 1 } },
      },
    })
    const done = (): number => tally.open + tally.crash + tally.cancel + tally.close
    const isEnough = (): boolean => done() >= 1_000 && log.count('start') >= 300
    const rounds: ((who: Troublemaker) => Promise<void>)[] = [
      (who) => who.session([log.mode]),
      (who) => who.session([log.mode]),
      (who) => who.session([log.mode, 'stdout-noise']),
      (who) => who.session([log.mode, 'crash-after-n-calls=2']),
      (who) => who.lease(servers, 'own'),
      (who) => who.lease(servers, 'everybodys'),
    ]
    await Promise.all(
      rounds.map(async (round, number) => {
        const who = troublemaker(number + 1)
        while (!isEnough()) await round(who)
      }),
    ).catch((error: unknown) => {
      throw new Error(because, { cause: error })
    })
    await servers.close()

    expect(survivors(log), because).toEqual([])
    expect(liveDescendants(), because).toEqual(before.processes)
    expect(await leftSince(before.resources), because).toEqual([])
    await expect.poll(() => openDescriptors(), { message: because }).toBeLessThanOrEqual(before.descriptors)
    expect(processListeners(), because).toEqual(before.listeners)
    expect(getEventListeners(outer.signal, 'abort'), because).toEqual([])
    for (const count of Object.values(tally)) expect(count, JSON.stringify(tally)).toBeGreaterThan(100)
  },
)
