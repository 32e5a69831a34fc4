import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { parse } from 'yaml'
import { BenchChild } from '../../../bench/shared/bench-child.ts'
import type { MockModel } from '../../../bench/shared/mock-model.ts'
import { evaluateRows, type Exported, readLines, writeLines } from './evaluate-rows.ts'
import { type GymBlock, type NemoGym, openaiModel, simpleAgent } from './gym-servers.ts'

/** Resources servers of the package that need nothing beside it: with and without tools, with state, with long prompts. */
const examples = [
  'calendar',
  'example_multi_step',
  'example_single_tool_call',
  'example_tool_call_multireward',
  'indirect_prompt_injection',
  'workplace_assistant',
  'xlam_fc',
] as const

interface GymConfiguration {
  readonly resources_servers?: Readonly<Record<string, Readonly<Record<string, unknown>>>>
}

interface GymItem {
  readonly type: string
  readonly name?: string
  readonly arguments?: string
  readonly output?: string
  readonly content?: readonly { readonly text: string }[]
}

interface GymResult {
  readonly _ng_task_index: number
  readonly reward: number
  readonly response: { readonly output: readonly GymItem[] }
}

/** The rows that the package has for its servers, with `millrace eval` and with simple_agent: the same calls, results and rewards. */
export async function exampleRows(gym: NemoGym, folder: string): Promise<string> {
  await using owned = new AsyncDisposableStack()
  const program = new URL('../../../bench/shared/mock-model.ts', import.meta.url)
  const { url: model } = await owned.use(new BenchChild(program, {})).answer<MockModel>()
  const agents = await Promise.all(
    examples.map(async (name) => [
      [name, await exampleServer(gym, name)] as const,
      [agentOf(name), simpleAgent(name, 'policy_model')] as const,
    ]),
  )
  const { head } = owned.use(
    await gym.start(Object.fromEntries([['policy_model', openaiModel(model)], ...agents.flat()])),
  )

  let [rollouts, rewarded] = [0, 0]
  for (const name of examples) {
    const path = join(gym.packages, 'resources_servers', name, 'data', 'example.jsonl')
    const rows = (await readFile(path, 'utf8')).trimEnd().split('\n').map(withoutAgent)
    const input = await writeLines(join(folder, `${name}-input.jsonl`), rows)
    const output = join(folder, `${name}-there.jsonl`)
    await gym.collect({ head, agent: agentOf(name), input, output, atOnce: rows.length, aggregates: false })
    const there = await readLines<GymResult>(output)
    const words = [`http://${head}`, `--nemo-gym.agent=${agentOf(name)}`]
    const here = await evaluateRows({ run: name, folder, words, rows, model })
    assert.deepEqual([here.length, there.length], [rows.length, rows.length], `rollouts of ${name}`)
    for (const rollout of here) {
      const result = there.find((each) => each._ng_task_index === rollout.task.index)
      assert.ok(result, `task ${rollout.task.index} of ${name}`)
      assert.equal(rollout.reward, result.reward, `the reward of task ${rollout.task.index} of ${name}`)
      assertSameEpisode(name, rollout, result)
      rollouts += 1
      rewarded += rollout.reward === 1 ? 1 : 0
    }
  }
  return `${rollouts} rollouts with ${examples.length} servers are the same as those of simple_agent, ${rewarded} of them with the reward 1`
}

function agentOf(name: string): string {
  return `agent_of_${name}`
}

/** As its configuration says, at another address. */
async function exampleServer(gym: NemoGym, name: string): Promise<GymBlock> {
  const path = join(gym.packages, 'resources_servers', name, 'configs', `${name}.yaml`)
  const configuration = parse(await readFile(path, 'utf8')) as Readonly<Record<string, GymConfiguration>>
  const settings = Object.values(configuration).find((each) => each.resources_servers)?.resources_servers?.[name]
  return { kind: 'resources_servers', implementation: name, ...(settings && { settings }) }
}

/** Rows name the agents of the package's own configurations. */
function withoutAgent(row: string): string {
  const { agent_ref: _agent, ...rest } = JSON.parse(row) as Record<string, unknown>
  return JSON.stringify(rest)
}

function assertSameEpisode(name: string, { id, messages }: Exported, { response }: GymResult): void {
  const there = response.output.map((item) => item.content?.[0]?.text ?? item.output ?? [item.name, item.arguments])
  const here = messages.flatMap(({ role, content, tool_calls: calls = [] }): unknown[] => {
    const made = calls.map((call) => [call.function.name, call.function.arguments])
    return content === null || (content === '' && role === 'assistant') ? made : [content, ...made]
  })
  // The prompt comes first, which may be a conversation itself.
  const end = here.slice(-there.length)
  if (!isDeepStrictEqual(end, there)) assert.deepEqual(end, there, `${id} of ${name}`)
}
