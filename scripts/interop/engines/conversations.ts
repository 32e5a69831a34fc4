import { join } from 'node:path'
import { Agent, request } from 'undici'
import { defineEnvironment, evaluate, z } from '../../../src/index.ts'
import type { JsonObject } from '../../../src/schema/index.ts'
import { findModels, GatewayServer } from '../../../src/serve/index.ts'
import { apiClients, apiNames } from '../../../test/support/gateway/api-clients.ts'
import { type OpenToAsk, Talk } from '../../../test/support/gateway/scripted-conversation.ts'

export const turns = 5
const atOnce = 10
const maxTokens = 200
const result = (place: string): string => `entry ${place}: naïve 日本語 🙂, "quoted" and \\ more`

export interface RunOptions {
  /** The engine, or what stands in front of it. */
  readonly url: string
  readonly folder: string
  readonly isExact: boolean
  readonly count: number
  /** Called before each turn of a session. */
  readonly onTurn?: () => Promise<void>
}

const adminKey = 'admin-key-of-the-engines'

/** The limit of a reply, as each API calls it. */
const limitNames: Readonly<Record<string, string>> = {
  '/v1/chat/completions': 'max_tokens',
  '/v1/responses': 'max_output_tokens',
  '/v1/messages': 'max_tokens',
}

/** Has clients of the three APIs, with a tool, talk through a gateway. Returns the folder of its run. */
export async function talkThroughGateway({ url, folder, isExact, count, onTurn }: RunOptions): Promise<string> {
  const signal = AbortSignal.timeout(60_000)
  const defaults = isExact ? { tokens: 'exact' as const } : {}
  const found = await findModels({ backends: [`${url}/v1`], defaults, env: {}, signal })
  await using server = await GatewayServer.open({
    ...found,
    keys: [{ tenant: 'interop', key: adminKey }],
    port: 0,
    run: { root: folder, name: 'gateway' },
    env: {},
  })
  const agent = new Agent()
  const gateway: OpenToAsk = {
    async open(path, { body, key = adminKey, headers = {} }) {
      const limit = limitNames[path]
      const sampling = limit === undefined ? {} : { temperature: 1, [limit]: maxTokens }
      return await request(server.url + path, {
        method: 'POST',
        dispatcher: agent,
        headers: { ...headers, authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ ...(body as JsonObject), ...sampling }),
      })
    },
  }
  const left = Array.from({ length: count }, (_, index) => index)
  const talkOn = async (): Promise<void> => {
    for (let index = left.shift(); index !== undefined; index = left.shift()) await oneSession(gateway, index, onTurn)
  }
  await Promise.all(Array.from({ length: atOnce }, talkOn))
  await agent.close()
  return join(folder, 'gateway')
}

async function oneSession(gateway: OpenToAsk, index: number, onTurn: RunOptions['onTurn']): Promise<void> {
  const { body } = await gateway.open('/v1/sessions', { body: {} })
  const { sessions } = (await body.json()) as { sessions: [{ id: string; key: string }] }
  const [session] = sessions
  const api = apiNames[index % apiNames.length] ?? 'chat'
  const talk = new Talk(gateway, session, apiClients[api], talkOptions)
  for (let turn = 0; turn < turns; turn += 1) {
    await onTurn?.()
    const { length } = talk.openCalls
    if (length > 0) talk.results(Array.from({ length }, (_, call) => result(`${turn}.${call}`)))
    else talk.user(turn === 0 ? firstQuestion : `What is word ${turn}?`)
    talk.take(await talk.ask({ stream: (index + turn) % 2 === 1 }))
  }
  await gateway.open(`/v1/sessions/${session.id}/end`, { body: {} })
}

const talkOptions = { model: 'tiny', system: 'Look every word up.', tools: true }
const firstQuestion = 'What is word 0? Größe, 日本 🙂\n\n'

/** The ids of the first prompt of such a session, as the engine renders it. */
export async function firstPromptOf(engine: string): Promise<readonly number[]> {
  const { messages, tools } = apiClients.chat.body(apiClients.chat.user(firstQuestion), {
    ...talkOptions,
    stream: false,
  })
  const body = JSON.stringify({ model: 'tiny', messages, tools, add_generation_prompt: true })
  const headers = { 'content-type': 'application/json' }
  const { tokens } = (await (await fetch(`${engine}/tokenize`, { method: 'POST', headers, body })).json()) as {
    tokens: number[]
  }
  return tokens
}

/** Evaluates an environment with the same tool, whose rollouts have as many turns. Returns the folder of the run. */
export async function evaluateRollouts({ url, folder, isExact, count }: RunOptions): Promise<string> {
  const evaluation = evaluate({
    environment: lookingUp(count),
    model: { name: 'tiny', backends: [{ url: `${url}/v1`, engine: 'vllm' }], ...(isExact && { tokens: 'exact' }) },
    captureTokens: true,
    // Its request would be in the ledger.
    preflight: false,
    concurrency: atOnce,
    sampling: { temperature: 1, maxTokens },
    run: { root: folder, name: 'rollouts' },
  })
  const { outcomes } = await evaluation.summary()
  if (outcomes.completed !== count) throw new Error(`not all rollouts were completed: ${JSON.stringify(outcomes)}`)
  return join(folder, 'rollouts')
}

function lookingUp(count: number) {
  return defineEnvironment({
    name: 'looking-up',
    task: z.object({ row: z.number() }),
    tasks: () => Array.from({ length: count }, (_, row) => ({ row })),
    prompt: ({ task }) => `What is word ${task.row}?`,
    tools: {
      look_up: {
        description: 'Looks a word up.',
        parameters: z.object({ word: z.string(), language: z.string() }),
        run: ({ word }) => result(word),
      },
    },
    agent: async ({ turn, tools, append }) => {
      for (let index = 0; index < turns; index += 1) {
        const { calls } = await turn()
        if (calls.length > 0) append(...(await tools.call(calls)))
        else append({ role: 'user', content: `Go on with part ${index}.` })
      }
    },
    reward: () => 1,
  })
}
