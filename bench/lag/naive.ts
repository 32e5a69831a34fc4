/**
 * What one writes first, and what the benchmark compares with: everything on one loop. A reply is parsed as JSON, its lists
 * are kept as they come, and a rollout that has ended is put together as one record and written as a line.
 */
import { appendFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Pool } from 'undici'
import type { LagWork } from './subject.ts'

interface ReplyWire {
  readonly choices: readonly {
    readonly message: { readonly role: string; readonly content: string }
    readonly token_ids: number[]
    readonly logprobs: { readonly content: readonly { readonly logprob: number }[] }
    readonly routed_experts?: number[][][]
  }[]
}

interface TurnTokens {
  readonly ids: number[]
  readonly logprobs: number[]
  readonly experts: number[][][] | undefined
}

const poolSize = 256

export async function runNaive({ url, concurrency, turns, folder }: LagWork): Promise<number[]> {
  const { origin, pathname } = new URL(url)
  const path = `${pathname}/chat/completions`
  const pools = Array.from(
    { length: Math.ceil(concurrency / poolSize) },
    () => new Pool(origin, { connections: Math.min(poolSize, concurrency), pipelining: 1 }),
  )
  const replyMs: number[] = []

  const rollout = async (index: number): Promise<void> => {
    const pool = pools[index % pools.length] as Pool
    const headers = { 'content-type': 'application/json', 'x-session-id': `${index}-0` }
    const messages = [{ role: 'user', content: `Begin with number ${index}.` }]
    const sampled: TurnTokens[] = []
    for (let turn = 0; turn < turns; turn += 1) {
      const body = JSON.stringify({ model: 'bench', messages, logprobs: true, return_token_ids: true })
      const startedAt = performance.now()
      const response = await pool.request({ path, method: 'POST', headers, body })
      const [choice] = ((await response.body.json()) as ReplyWire).choices
      replyMs.push(performance.now() - startedAt)
      if (!choice) throw new Error('the reply has no choice')
      messages.push(choice.message)
      if (turn + 1 < turns) messages.push({ role: 'user', content: 'Go on.' })
      sampled.push({
        ids: choice.token_ids,
        logprobs: choice.logprobs.content.map(({ logprob }) => logprob),
        experts: choice.routed_experts,
      })
    }
    const trajectory = {
      id: `${index}-0`,
      reward: 1,
      messages,
      ids: sampled.flatMap(({ ids }) => ids),
      logprobs: sampled.flatMap(({ logprobs }) => logprobs),
      turns: sampled.map(({ ids }) => ids.length),
      experts: sampled.flatMap(({ experts }) => experts ?? []),
    }
    await appendFile(join(folder, 'rollouts.jsonl'), `${JSON.stringify(trajectory)}\n`)
  }

  await Promise.all(Array.from({ length: concurrency }, (_, index) => rollout(index)))
  await Promise.all(pools.map((pool) => pool.close()))
  return replyMs
}
