import { once } from 'node:events'
import { join } from 'node:path'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { RunReader } from '../../src/store/index.ts'
import { AskedProcess, startGateway } from '../support/gateway/gateway-process.ts'
import { saidIn, Talk } from '../support/gateway/scripted-conversation.ts'
import {
  emittedIn,
  emittedSample,
  recordedSample,
  samplesOf,
  type SampleRow,
} from '../support/gateway/emitted-tokens.ts'
import { apiClients, apiNames, type Received } from '../support/gateway/api-clients.ts'

const sessionCount = 50

/** One agent in one session, and the ends of replies that it saw. */
class Agent {
  readonly session: { readonly id: string; readonly key: string }
  readonly seen: Received[] = []
  talk: Talk
  #turn = 0

  constructor(gateway: AskedProcess, session: { readonly id: string; readonly key: string }, index: number) {
    this.session = session
    const api = apiNames[index % apiNames.length] ?? 'chat'
    this.talk = new Talk(gateway, session, apiClients[api], { system: `You are agent ${index}.`, tools: true })
  }

  async turn(): Promise<void> {
    this.#turn += 1
    if (this.talk.openCalls.length > 0) this.talk.results([`result ${this.#turn}`])
    else this.talk.user(`question ${this.#turn}`)
    const received = await this.talk.ask({ stream: this.#turn % 2 === 0 })
    this.seen.push(received)
    this.talk.take(received)
  }

  /** Until the gateway is gone. */
  async goOn(): Promise<void> {
    try {
      for (;;) await this.turn()
    } catch {
      // What was asked last was not answered, so it is as if it had not been said.
      this.talk.back(1)
    }
  }
}

test(
  'a gateway killed under load keeps every completed reply, and continues every session',
  { timeout: 120_000 },
  async () => {
    await using runs = await temporaryRuns()
    await using simulator = await SimulatorServer.start({
      recordEmitted: 100_000,
      reasoning: true,
      imitate: 'millrace',
      weightVersion: '7',
      tokensPerSecond: 1000,
    })
    const words = `--backend ${simulator.url} --runs ${runs.root} --run killed --log-level error`.split(' ')
    let agents: Agent[] = []
    {
      await using gateway = await startGateway(runs.root, ...words)
      await using asked = new AskedProcess(gateway.url)
      const { sessions } = await asked.json('/v1/sessions', { groupSize: sessionCount, taskId: 'survive' })
      agents = (sessions as Agent['session'][]).map((session, index) => new Agent(asked, session, index))
      const running = agents.map((agent) => agent.goOn())
      await expect
        .poll(() => Math.min(...agents.map(({ seen }) => seen.length)), { timeout: 60_000 })
        .toBeGreaterThan(2)
      gateway.running.process.kill('SIGKILL')
      await once(gateway.running.process, 'exit')
      await Promise.all(running)
    }
    const seenBefore = agents.flatMap(({ seen }) => seen.map(({ id }) => id))

    await using gateway = await startGateway(runs.root, ...words)
    await using asked = new AskedProcess(gateway.url)
    const { sessions } = await asked.json('/v1/sessions?state=open&limit=1000')
    const known = (sessions as { id: string }[]).map(({ id }) => id)
    expect(known.toSorted()).toEqual(agents.map(({ session }) => session.id).toSorted())
    expectAllThere(await samplesOf(asked), seenBefore)

    // The same keys, the same conversations.
    await Promise.all(
      agents.map(async (agent) => {
        agent.talk = agent.talk.movedTo(asked)
        await agent.turn()
        await agent.turn()
      }),
    )
    const rows = await samplesOf(asked)
    for (const { session, seen, talk } of agents) {
      const own = rows.filter((row) => row.session === session.id)
      expect(ancestry(own, seen.at(-1)?.id)).toEqual(seen.map(({ id }) => id))
      expect(spoken(own, seen)).toEqual(talk.said)
      const emitted = await emittedIn(simulator, session.id)
      const samples = new Set(emitted.map((reply) => JSON.stringify(emittedSample(reply))))
      for (const row of own.filter(({ discarded }) => discarded === null)) {
        expect(samples).toContain(JSON.stringify(recordedSample(row)))
      }
    }

    gateway.running.process.kill('SIGTERM')
    await expect.poll(() => gateway.running.process.exitCode).toBe(0)
    using reader = RunReader.open(join(runs.root, 'killed'))
    expect(reader.integrity()).toEqual([])
  },
)

function expectAllThere(rows: readonly SampleRow[], seen: readonly string[]): void {
  const complete = new Map<string, number>()
  for (const { interaction, discarded } of rows) {
    if (discarded === null) complete.set(interaction, (complete.get(interaction) ?? 0) + 1)
  }
  expect(seen.filter((id) => complete.get(id) !== 1)).toEqual([])
}

/** The replies that led to this one, and it. */
function ancestry(rows: readonly SampleRow[], id: string | undefined): string[] {
  const row = rows.find(({ interaction }) => interaction === id)
  if (!row) return []
  return [...ancestry(rows, row.parentInteraction ?? undefined), row.interaction]
}

function spoken(rows: readonly SampleRow[], seen: readonly Received[]): string[] {
  return seen.flatMap(({ id }) => rows.find(({ interaction }) => interaction === id)?.messages.map(saidIn) ?? [])
}
