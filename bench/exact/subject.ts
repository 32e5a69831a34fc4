/** Turns of bench/exact/run.ts in a process of its own; answers with what one costs. */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { defineEnvironment } from '../../src/env/index.ts'
import { evaluate } from '../../src/eval/index.ts'
import { Model, modelConfigSchema, Session } from '../../src/inference/index.ts'
import { cpuMsOf } from '../shared/process-usage.ts'
import { historyOf, InstantEngine, textOf } from './engine.ts'

export interface ExactInput {
  readonly root: string
  readonly contexts: readonly number[]
  readonly rounds: number
  readonly conversations: number
}

/** What one later turn takes, in microseconds. */
export interface TurnCost {
  readonly context: number
  readonly tokens: number
  readonly wallUs: number
  readonly cpuUs: number
}

export interface ExactFigures {
  /** A turn of a session over the model: the prompt is made, the reply is read, nothing is stored. */
  readonly prompt: readonly TurnCost[]
  /** The prompt alone, rendered anew, with the ids of all its texts remembered: as it is done where nothing can be gone on from. */
  readonly anew: readonly TurnCost[]
  /** A turn of a rollout of `evaluate`, stored. */
  readonly rollout: readonly TurnCost[]
}

// As many that what a long first prompt leaves to do (a copy, a checkpoint of the database, garbage) does not count for much in each.
const laterTurns = 40
const newTokens = 20
const input = JSON.parse(process.argv[2] ?? '') as ExactInput
const engine = new InstantEngine()
const config = modelConfigSchema.parse({ name: 'policy', tokens: 'exact' })

async function promptTurns(context: number): Promise<TurnCost> {
  await using model = new Model(config, [engine])
  const recorder = { node: () => {}, synced: () => undefined, version: () => {} }
  const { signal } = new AbortController()
  let [wallMs, cpuMs] = [0, 0]
  for (let conversation = 0; conversation < input.conversations; conversation += 1) {
    const session = new Session({ id: `${context}-${conversation}`, model, recorder })
    for (const message of historyOf(context)) session.append(message)
    const request = { tools: [], sampling: { maxTokens: 1000 }, captureTokens: true }
    await session.turn(request, { signal })
    const [startedAt, cpuBefore] = [performance.now(), cpuMsOf(process.pid)]
    for (let turn = 0; turn < laterTurns; turn += 1) {
      session.append({ role: 'user', content: textOf(newTokens) })
      await session.turn(request, { signal })
    }
    wallMs += performance.now() - startedAt
    cpuMs += cpuMsOf(process.pid) - cpuBefore
  }
  const turns = input.conversations * laterTurns
  return { context, tokens: engine.promptTokens, wallUs: (wallMs / turns) * 1000, cpuUs: (cpuMs / turns) * 1000 }
}

async function promptsAnew(context: number): Promise<TurnCost> {
  await using model = new Model(config, [engine])
  const { signal } = new AbortController()
  const messages = [...historyOf(context), { role: 'assistant', content: textOf(newTokens) } as const]
  messages.push({ role: 'user', content: textOf(newTokens) })
  const request = { messages, tools: [], sampling: { maxTokens: 1000 }, captureTokens: true, sessionId: 'anew' }
  await model.prepared(request, signal)
  const [startedAt, cpuBefore] = [performance.now(), cpuMsOf(process.pid)]
  for (let turn = 0; turn < laterTurns; turn += 1) await model.prepared(request, signal)
  const [wallMs, cpuMs] = [performance.now() - startedAt, cpuMsOf(process.pid) - cpuBefore]
  return { context, tokens: context, wallUs: (wallMs / laterTurns) * 1000, cpuUs: (cpuMs / laterTurns) * 1000 }
}

/** Rollouts one after the other. Of each, the time from its second reply to its last: the first prompt is on disk before that. */
async function rolloutTurns(context: number): Promise<TurnCost> {
  let [wallMs, cpuMs] = [0, 0]
  const environment = defineEnvironment({
    name: 'exact',
    task: z.object({ row: z.number() }),
    tasks: () => Array.from({ length: input.conversations }, (_, row) => ({ row })),
    prompt: () => historyOf(context),
    update({ messages }) {
      const replies = messages.filter(({ role }) => role === 'assistant').length
      const sign = replies === 2 ? -1 : replies === laterTurns + 2 ? 1 : 0
      wallMs += sign * performance.now()
      cpuMs += sign === 0 ? 0 : sign * cpuMsOf(process.pid)
      return replies < laterTurns + 2 ? { messages: [{ role: 'user', content: textOf(newTokens) }] } : { end: true }
    },
    reward: () => 1,
    limits: { maxTurns: 1000 },
  })
  const { outcomes } = await evaluate({
    environment,
    model: { name: 'policy', tokens: 'exact' },
    backends: { policy: [engine] },
    concurrency: 1,
    preflight: false,
    run: { root: input.root, name: 'exact' },
  }).summary()
  if (outcomes.completed !== input.conversations) throw new Error(`not all completed: ${JSON.stringify(outcomes)}`)
  await rm(join(input.root, 'exact'), { recursive: true })
  const turns = input.conversations * laterTurns
  return { context, tokens: engine.promptTokens, wallUs: (wallMs / turns) * 1000, cpuUs: (cpuMs / turns) * 1000 }
}

const figures: Record<keyof ExactFigures, TurnCost[]> = { prompt: [], anew: [], rollout: [] }
// The first round is not counted: modules are loaded in it, and V8 compiles.
for (let round = -1; round < input.rounds; round += 1) {
  for (const context of input.contexts) {
    const [prompt, anew] = [await promptTurns(context), await promptsAnew(context)]
    const rollout = await rolloutTurns(context)
    if (round < 0) continue
    figures.prompt.push(prompt)
    figures.anew.push(anew)
    figures.rollout.push(rollout)
  }
}
console.log(JSON.stringify(figures satisfies ExactFigures))
