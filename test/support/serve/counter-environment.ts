import { z } from 'zod'
import { defineEnvironment, environmentOf } from '../../../src/env/index.ts'
import { ServedTools } from '../../../src/serve/mcp/served-tools.ts'

export interface CounterLog {
  readonly setUp: string[]
  readonly tornDown: (number | undefined)[]
  /** Calls that were told to stop, by the name of their tool. */
  readonly stopped: string[]
  readonly events: string[]
}

export interface Counter {
  readonly tools: ServedTools
  readonly log: CounterLog
  /** Lets one call of `wait` or `wait_alone` end. */
  readonly release: () => void
}

/** An environment that counts, one count per session; and what happened to it. */
export async function counter(
  options: { readonly setup?: () => void | Promise<void>; readonly teardown?: () => Promise<void> } = {},
): Promise<Counter> {
  const log: CounterLog = { setUp: [], tornDown: [], stopped: [], events: [] }
  const waiting: (() => void)[] = []
  const waits =
    (name: string) =>
    (_: unknown, { signal }: { readonly signal: AbortSignal }): Promise<string> => {
      log.events.push(`${name} starts`)
      return new Promise((resolve, reject) => {
        waiting.push(() => {
          log.events.push(`${name} ends`)
          resolve('waited')
        })
        signal.addEventListener('abort', () => {
          log.stopped.push(name)
          reject(signal.reason)
        })
      })
    }
  const environment = defineEnvironment({
    name: 'counter',
    description: 'Counts up from what the task says.',
    task: z.object({ from: z.number() }),
    tasks: () => [{ from: 10 }, { from: 20 }, { from: 'none' }],
    setup: async ({ task, rollout }) => {
      log.setUp.push(rollout.id)
      await options.setup?.()
      return { count: task.from }
    },
    teardown: async ({ state }) => {
      log.tornDown.push(state?.count)
      await options.teardown?.()
    },
    prompt: () => 'Count.',
    tools: {
      add: {
        description: 'Adds to the count',
        parameters: z.object({ by: z.number().describe('how many') }),
        run: ({ by }, { state }) => {
          state.count += by
          return String(state.count)
        },
      },
      wait: { parameters: z.object({}), run: waits('wait') },
      wait_alone: { parameters: z.object({}), exclusive: true, run: waits('wait_alone') },
      fail: {
        parameters: z.object({}),
        run: () => {
          throw new Error('it is broken')
        },
      },
      draw: {
        parameters: z.object({}),
        run: () => [
          { type: 'text' as const, text: 'a dot' },
          { type: 'image_url' as const, image_url: { url: 'data:image/png;base64,iVBORw0K' } },
          { type: 'image_url' as const, image_url: { url: 'https://example.org/dot.png' } },
        ],
      },
      delegate: { parameters: z.object({}), run: async (_, { child }) => (await child({ prompt: 'do it' })).answer },
    },
    reward: () => 0,
  })
  const tools = await ServedTools.open(environmentOf(environment, {}), { env: {} })
  return { tools, log, release: () => waiting.shift()?.() }
}
