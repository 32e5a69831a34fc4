/** Sessions that are opened, used, crashed, left and closed at random. */
import { setImmediate as nextTick } from 'node:timers/promises'
import { calling, sessionWith } from './session-with.ts'
import type { ServerAnswer, ServerCall } from '../../../src/tools/mcp/transports/pending-calls.ts'
import { MillraceError } from '../../../src/errors/index.ts'
import { hash32, seededRandom } from '../../../src/kit/index.ts'
import type { ToolServers } from '../../../src/tools/mcp/sharing/tool-servers.ts'

export type Tally = Record<'open' | 'crash' | 'cancel' | 'close', number>

type MakeCall = (call: ServerCall) => Promise<ServerAnswer>

/** The reason of those who leave. */
const left = new Error('left')

/** One that does one thing after another, whatever comes of it, and counts what it did. */
export class Troublemaker {
  readonly #random: () => number
  readonly #tally: Tally
  /** Of a run that outlives everything here: nothing may stay with it. */
  readonly #outer: AbortSignal

  constructor({ seed, number, tally, outer }: { seed: number; number: number; tally: Tally; outer: AbortSignal }) {
    this.#random = seededRandom(hash32(seed, number))
    this.#tally = tally
    this.#outer = outer
  }

  /** One session from its opening to its end, either of which may come too early. */
  async session(modes: string[]): Promise<void> {
    // Nobody waits for its turn to reconnect: each crash is a new process.
    const { session } = sessionWith(modes, { reconnect: { max: 1, windowMs: 1 } })
    this.#tally.open += 1
    const calls: Promise<void>[] = []
    const beginning = this.#random()
    if (beginning < 0.1) {
      calls.push(outcomeOf(session.open(this.#outer)))
      await this.#aWhile()
    } else if (beginning < 0.2) await this.#leave((signal) => session.open(signal))
    else await outcomeOf(session.open(this.#outer))
    await this.#use((call) => session.call(call))
    // Some are closed in the middle of a call.
    if (this.#chance(0.3)) calls.push(outcomeOf(session.call(this.#calling('sleep', { ms: 600_000 }))))
    await session.close()
    this.#tally.close += 1
    await Promise.all(calls)
  }

  /** One rollout's hold on servers, from the wait for it to its end. */
  async lease(servers: ToolServers, server: string): Promise<void> {
    this.#tally.open += 1
    if (this.#chance(0.15)) {
      await this.#leave(async (signal) => {
        await using _given = await servers.lease({ signal })
      })
    } else {
      await using lease = await servers.lease({ signal: this.#outer })
      await this.#use((call) => lease.call(server, call))
    }
    this.#tally.close += 1
  }

  async #use(make: MakeCall): Promise<void> {
    for (let step = Math.floor(this.#random() * 7); step > 0; step -= 1) {
      const what = this.#random()
      if (what < 0.3) await outcomeOf(make(this.#calling('echo')))
      else if (what < 0.5) {
        this.#tally.crash += 1
        await outcomeOf(make(this.#calling('crash')))
      } else await this.#leave((signal) => make({ ...calling('sleep', { ms: 600_000 }), signal }))
    }
  }

  #calling(tool: string, given?: Record<string, unknown>): ServerCall {
    return { ...calling(tool, given), signal: this.#outer }
  }

  /** Waits for something for a random while, and then no longer. */
  async #leave(wait: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
    this.#tally.cancel += 1
    const leaving = new AbortController()
    const waiting = outcomeOf(wait(leaving.signal))
    await this.#aWhile()
    leaving.abort(left)
    await waiting
  }

  async #aWhile(): Promise<void> {
    for (let ticks = Math.floor(this.#random() * 30); ticks > 0; ticks -= 1) await nextTick()
  }

  #chance(share: number): boolean {
    return this.#random() < share
  }
}

/** Lets pass what must be reckoned with, and nothing else. */
async function outcomeOf(work: Promise<unknown>): Promise<void> {
  try {
    await work
  } catch (error) {
    const isExpected = error instanceof MillraceError && ['tool_infra', 'closed'].includes(error.code)
    if (error !== left && !isExpected) throw error
  }
}
