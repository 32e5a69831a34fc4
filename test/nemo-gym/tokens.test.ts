/** What a trainer reads of a result of `/run`: the tokens of each reply, on its last item, each prompt going on from the tokens before it. */
import { join } from 'node:path'
import { type ModelConfigInput, type NamedAgent } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RolloutServer, RolloutService } from '../../src/serve/index.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { isSampled, type TokenItem, turnsOf } from '../support/nemo-gym/token-items.ts'

interface RunReply {
  readonly outcome: string
  readonly reward: number
  readonly response: {
    readonly output: readonly TokenItem[]
    readonly usage: { readonly input_tokens: number; readonly output_tokens: number }
  }
}

interface StoredNode {
  readonly sampled: boolean
  readonly tokens?: { readonly promptIds: number[]; readonly ids: number[]; readonly logprobs: number[] }
}

interface Asked {
  readonly model: string | ModelConfigInput
  readonly agent?: NamedAgent
  readonly captureTokens?: boolean
}

const environment = join(import.meta.dirname, '../../examples/guess-number/environment.ts')

/** Guesses numbers: some ten turns, each with a call. Gives the reply, and the nodes that the record has. */
async function guess({ model, agent, captureTokens = true }: Asked) {
  await using runs = await temporaryRuns()
  const options = { environment, model, captureTokens, ...(agent && { agent }), seed: 3, preflight: false }
  await using service = await RolloutService.open({ ...options, run: { root: runs.root } })
  await using httpServer = await RolloutServer.open({ service, port: 0, nemoGym: { failures: 'class' } })
  const response = await fetch(`${httpServer.url}/run`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ responses_create_params: { input: [] }, low: 1, high: 500 }),
  })
  const reply = (await response.json()) as RunReply
  const stored = await fetch(`${httpServer.url}/v1/rollouts/0-0?include=tokens`)
  const { nodes = [] } = (await stored.json()) as { readonly nodes?: readonly StoredNode[] }
  await service.close()
  return { reply, nodes: nodes.filter(({ sampled }) => sampled) }
}

function expectTokens({ reply, nodes }: Awaited<ReturnType<typeof guess>>): void {
  const { output, usage } = reply.response
  const turns = turnsOf(output)
  expect(turns.length).toBeGreaterThan(4)
  // On the last item of each reply, and on no other.
  expect(turns.map((items) => items.map((item) => item.prompt_token_ids !== undefined))).toEqual(
    turns.map((items) => items.map((_item, index) => index === items.length - 1)),
  )
  expect(output.filter((item) => !isSampled(item) && 'generation_token_ids' in item)).toEqual([])
  const sampled = turns.map((items) => items.at(-1))
  expect(sampled).toMatchObject(
    nodes.map(({ tokens }) => ({
      prompt_token_ids: tokens?.promptIds,
      generation_token_ids: tokens?.ids,
      generation_log_probs: tokens?.logprobs,
    })),
  )
  // As trainers check it.
  let seen: readonly number[] = []
  for (const {
    prompt_token_ids: prompt = [],
    generation_token_ids: ids = [],
    generation_log_probs: logprobs,
  } of sampled as TokenItem[]) {
    expect(prompt.slice(0, seen.length)).toEqual(seen)
    expect(prompt.length).toBeGreaterThan(seen.length)
    expect(logprobs).toHaveLength(ids.length)
    seen = [...prompt, ...ids]
  }
  const written = sampled.reduce((sum, item) => sum + (item?.generation_token_ids?.length ?? 0), 0)
  expect(usage.output_tokens).toBe(written)
}

test('a rollout of several turns with calls has the tokens of each reply', async () => {
  expectTokens(await guess({ model: 'sim' }))
})

test('with thoughts, text and calls in one reply, the tokens are on the last of them', async () => {
  const { reply, nodes } = await guess({ model: { name: 'sim', simulator: { reasoning: true } } })
  expect(turnsOf(reply.response.output).some((items) => items.length > 1)).toBe(true)
  expectTokens({ reply, nodes })
})

test('an agent that asks several times over has all its replies', async () => {
  expectTokens(await guess({ model: 'sim', agent: { name: 'refine', turns: 2 } }))
})

test('with exact tokens, samples that would not survive decoding and encoding go on without a gap', async () => {
  await using simulator = await SimulatorServer.start({ tokens: 'lossy' })
  expectTokens(await guess({ model: { name: 'sim', tokens: 'exact', backends: [{ url: simulator.url }] } }))
})

test('without exact tokens, such samples end the tokens where the prompt no longer goes on', async () => {
  await using simulator = await SimulatorServer.start({ tokens: 'lossy' })
  const { reply, nodes } = await guess({ model: { name: 'sim', backends: [{ url: simulator.url }] } })
  const has = turnsOf(reply.response.output).map((items) => items.at(-1)?.prompt_token_ids !== undefined)
  const firstWithout = has.indexOf(false)
  expect(firstWithout).toBeGreaterThan(0)
  expect(has.slice(firstWithout)).not.toContain(true)
  expect(nodes).toHaveLength(has.length)
})

test('without --tokens there are none', async () => {
  const { reply } = await guess({ model: 'sim', captureTokens: false })
  expect(JSON.stringify(reply)).not.toContain('token_ids')
})
