import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import arithmetic from '../../../examples/arithmetic/environment.ts'
import delegate from '../../../examples/delegate/environment.ts'
import diversePrimes from '../../../examples/diverse-primes/environment.ts'
import guessNumber from '../../../examples/guess-number/environment.ts'
import jsonlQuestions from '../../../examples/jsonl-questions/environment.ts'
import judgedAnswers from '../../../examples/judged-answers/environment.ts'
import type { ChildRequest, Environment, Reward, RewardContext, RolloutContext } from '../../env/index.ts'
import { textOf, type AssistantMessage, type Message, type ToolDefinition } from '../../schema/index.ts'
import { noServers } from '../../tools/index.ts'
import { Simulator } from '../engine/simulator.ts'

/**
 * The examples against the simulator's solvers, without the engine: just enough of a rollout to ask, to run the tools and
 * to score. The examples themselves run in the engine elsewhere; here the question is whether they can be solved.
 */
class Player {
  readonly #environment: Environment
  readonly #simulator: Simulator
  readonly #signal = new AbortController().signal

  constructor(environment: Environment, simulator: Simulator) {
    this.#environment = environment
    this.#simulator = simulator
  }

  async play(task: unknown, seed: number): Promise<Played> {
    const environment = this.#environment
    const rollout = { id: `0-${seed}`, attempt: 1, sample: seed, seed }
    const context = {
      task,
      options: {},
      rollout,
      signal: this.#signal,
      servers: noServers,
      budget: { turnsLeft: 50, tokensLeft: 1e9, costLeftUsd: 1, workingMsLeft: 1e6, wallMsLeft: 1e6 },
      metric: () => {},
      note: () => {},
    }
    const state = await environment.setup?.(context)
    const whole: RolloutContext<unknown, unknown, unknown> = {
      ...context,
      state,
      child: async ({ prompt: text, tools }: ChildRequest) => {
        const messages = await this.#loop(start(text), seed, whole, tools)
        const answer = textOf(messages.at(-1) as Message)
        return { id: 'child', outcome: 'completed', answer, messages, turns: 1, usage: noUsage }
      },
    }
    const messages = await this.#loop(start(environment.prompt({ ...context, state })), seed, whole)
    const rewardContext: RewardContext<unknown, unknown, unknown> = {
      ...whole,
      messages,
      answer: textOf(messages.findLast(({ role }) => role === 'assistant') as Message),
      outcome: 'completed',
      truncated: false,
      toolRepairs: 0,
      judge: ({ messages: asked }) => this.#ask(asked, [], seed),
    }
    return { messages, context: rewardContext, answer: rewardContext.answer }
  }

  async #loop(
    messages: Message[],
    seed: number,
    context: RolloutContext<unknown, unknown, unknown>,
    names?: readonly string[],
  ) {
    const tools = Object.entries(this.#environment.tools ?? {}).filter(([name]) => names?.includes(name) ?? true)
    const definitions = tools.map(([name, tool]): ToolDefinition => {
      const parameters = z.toJSONSchema(tool.parameters as z.ZodType) as Record<string, unknown>
      return { type: 'function', function: { name, parameters } }
    })
    for (let turn = 0; turn < 50; turn += 1) {
      const reply = await this.#ask(messages, definitions, seed)
      messages.push(reply)
      if (!reply.tool_calls) return messages
      const results = await Promise.all(
        reply.tool_calls.map(async (call): Promise<Message> => {
          const tool = tools.find(([name]) => name === call.function.name)?.[1]
          const answer = async () => {
            if (!tool) throw new Error(`there is no tool ${call.function.name}`)
            const args = await tool.parameters['~standard'].validate(JSON.parse(call.function.arguments))
            if (args.issues) throw new Error('the arguments do not fit')
            return await tool.run(args.value, context)
          }
          const content = await answer().catch((error: unknown) => `Error: ${String(error)}`)
          return {
            role: 'tool',
            tool_call_id: call.id,
            content: typeof content === 'string' ? content : JSON.stringify(content),
          }
        }),
      )
      messages.push(...results)
      const said = await this.#environment.update?.({ ...context, messages, reply })
      if (said?.end === true) return messages
    }
    return messages
  }

  async #ask(messages: readonly Message[], tools: readonly ToolDefinition[], seed: number): Promise<AssistantMessage> {
    const request = { messages, tools, sampling: { seed }, captureTokens: false, sessionId: '', retry: 0 }
    return (await this.#simulator.send({ ...request, signal: this.#signal })).message
  }
}

interface Played {
  readonly messages: readonly Message[]
  readonly context: RewardContext<unknown, unknown, unknown>
  readonly answer: string
}

const noUsage = { calls: 0, input: 0, cachedInput: 0, output: 0, reasoning: 0 }
const start = (prompt: string | readonly Message[]): Message[] =>
  typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : [...prompt]

async function* tasksOf(environment: Environment): AsyncGenerator {
  const options = environment.options ? await environment.options['~standard'].validate({}) : { value: {} }
  if (options.issues) throw new Error('the options have no defaults')
  const input = await environment.tasks(options.value)
  if (!('rows' in input)) yield* input
  else for await (const row of input.rows()) if ('value' in row) yield row.value
}

/** The mean reward of `count` tasks with `attempts` rollouts each. */
async function meanReward(
  environment: Environment,
  options: { skill: number; sloppiness?: number; count: number; attempts?: number },
) {
  const { skill, sloppiness = 0, count, attempts = 1 } = options
  await using simulator = new Simulator({ skill, sloppiness })
  const player = new Player(environment, simulator)
  let [total, rollouts, index] = [0, 0, 0]
  for await (const task of tasksOf(environment)) {
    if (index >= count) break
    const group: Played[] = []
    for (let sample = 0; sample < attempts; sample += 1) {
      group.push(await player.play(task, index * 1000 + sample))
    }
    for (const reward of await scoreGroup(environment, group)) total += reward
    rollouts += attempts
    index += 1
  }
  return total / rollouts
}

async function scoreGroup({ reward }: Environment, group: readonly Played[]): Promise<number[]> {
  const components: Reward<unknown, unknown, unknown>[] =
    typeof reward === 'function' ? [reward] : Object.values(reward)
  const rewards = group.map(() => 0)
  for (const component of components) {
    const weight = typeof component === 'function' ? 1 : (component.weight ?? 1)
    const scores =
      typeof component === 'object' && 'group' in component
        ? await component.group({
            task: group[0]?.context.task,
            options: {},
            signal: new AbortController().signal,
            members: group.map(({ answer, messages }, sample) => ({
              id: String(sample),
              sample,
              outcome: 'completed',
              truncated: false,
              toolRepairs: 0,
              answer,
              messages,
              scores: {},
              info: {},
            })),
          })
        : await Promise.all(
            group.map(async ({ context }) =>
              typeof component === 'function' ? component(context) : component.score(context),
            ),
          )
    for (const [index, score] of scores.entries()) rewards[index] = (rewards[index] ?? 0) + weight * Number(score)
  }
  return rewards
}

describe('a perfect simulator solves more than a worse one of', () => {
  test.each([
    ['arithmetic', arithmetic, { count: 100 }, 1],
    ['guess-number', guessNumber, { count: 100 }, 1],
    ['judged-answers', judgedAnswers, { count: 18, attempts: 5 }, 1],
    ['diverse-primes', diversePrimes, { count: 20, attempts: 8 }, 0.97],
    ['delegate', delegate, { count: 50 }, 1],
    // Each of its rollouts starts a process to be scored.
    ['jsonl-questions', jsonlQuestions, { count: 6, attempts: 3 }, 1],
  ])('%s', async (_, environment, size, atLeast) => {
    expect(await meanReward(environment, { skill: 1, ...size })).toBeGreaterThanOrEqual(atLeast)
    expect(await meanReward(environment, { skill: 0.8, ...size })).toBeLessThan(0.95)
  })

  test('after an invalid call, an arithmetic tool is called again', async () => {
    const reward = await meanReward(arithmetic, { skill: 1, sloppiness: 0.4, count: 100 })
    expect(reward).toBe(1)
  })
})

test('every question of jsonl-questions can be solved', async () => {
  await using simulator = new Simulator()
  const player = new Player(jsonlQuestions, simulator)
  let count = 0
  for await (const task of tasksOf(jsonlQuestions)) {
    const { question, answer } = task as { question: string; answer: number }
    expect((await player.play(task, 0)).answer, question).toBe(`Answer: ${answer}`)
    count += 1
  }
  expect(count).toBe(60)
})

test('arithmetic tasks are deterministic, distinct, and grow with the difficulty', async () => {
  const tasks = await Array.fromAsync(tasksOf(arithmetic))
  expect(tasks).toEqual(await Array.fromAsync(tasksOf(arithmetic)))
  expect(tasks).toHaveLength(200)
  expect(new Set(tasks.map((task) => JSON.stringify(task))).size).toBeGreaterThan(195)
  const hard = await Array.fromAsync(
    arithmetic.tasks({ count: 5, difficulty: 5 }) as AsyncIterable<{ expression: string }>,
  )
  expect(hard.every(({ expression }) => (expression.match(/ [-+*] /g) ?? []).length === 5)).toBe(true)
})
