import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import {
  chatReply,
  ScriptedServer,
  sendJson,
  type ServedRequest,
} from '../../../test/support/inference/scripted-server.ts'
import { freePort } from '../../../test/support/kit/free-port.ts'
import { ServerProcess } from '../server-process.ts'
import { row } from './gym-bench.ts'
import { counterServer, type GymBlock, type NemoGym, simpleAgent } from './gym-servers.ts'

const millraceProgram = join(import.meta.dirname, '..', '..', '..', 'bin', 'millrace.js')
const adminKey = 'the admin key of this gateway'
const startMs = 60_000
const rollouts = 40
const atOnce = 8

interface Call {
  readonly function: { readonly name: string; readonly arguments: string }
}

interface Said {
  readonly role: string
  readonly content?: string | null
  readonly tool_calls?: readonly Call[]
}

interface ChatBody {
  readonly messages: readonly Said[]
  readonly tools?: readonly Call[]
}

interface Item {
  readonly type: string
  readonly prompt_token_ids?: readonly number[]
  readonly generation_token_ids?: readonly number[]
  readonly generation_log_probs?: readonly number[]
}

interface Result {
  readonly reward: number
  readonly response: { readonly output: readonly Item[] }
}

/** NeMo Gym's agent and verifier with Millrace as their model server, before two engines. */
export async function modelServer(gym: NemoGym, folder: string): Promise<string> {
  await using engines = new AsyncDisposableStack()
  const started = [engines.use(await ScriptedServer.start(answer)), engines.use(await ScriptedServer.start(answer))]
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const backends = started.flatMap((engine) => ['--backend', engine.url])
  await using _gateway = await ServerProcess.start({
    program: process.execPath,
    words: [millraceProgram, 'gateway', ...backends, '--nemo-gym', '--port', String(port), '--log-level', 'error'],
    env: { ...process.env, MILLRACE_ADMIN_KEY: adminKey },
    cwd: folder,
    readyUrl: `${url}/ready`,
    startMs,
  })
  const model: GymBlock = { kind: 'responses_api_models', implementation: 'vllm_model', port }
  await using servers = await gym.start({
    counter: counterServer,
    policy_model: model,
    simple_agent: simpleAgent('counter', 'policy_model'),
  })
  const input = join(folder, 'model-server.jsonl')
  const output = join(folder, 'model-server-results.jsonl')
  const rows = Array.from({ length: rollouts }, (_, index) => `${row('3', `${index + 1}`, `${index + 4}`)}\n`)
  await writeFile(input, rows.join(''))
  const found = await gym.collect({ head: servers.head, agent: 'simple_agent', input, output, atOnce })
  assert.partialDeepStrictEqual(found, { results: rollouts, rewarded: rollouts, failed: 0 })
  const results = (await readFile(output, 'utf8')).trim().split('\n')
  for (const result of results) assertContiguous((JSON.parse(result) as Result).response.output)
  const perEngine = started.map(({ requests }) => new Set(requests.flatMap(sessionOf)))
  const [one = new Set(), other = new Set()] = perEngine
  assert.equal(one.intersection(other).size, 0, 'sessions that two engines were asked in')
  assert.equal(one.size + other.size, rollouts, 'sessions of the gateway')
  assert.ok(one.size > 0 && other.size > 0, `sessions of each engine: ${one.size} and ${other.size}`)
  return `${rollouts} rollouts with the reward 1 and the tokens of each turn, ${one.size} sessions at one engine and ${other.size} at the other`
}

/** Two replies of the model, each with the tokens of its prompt, which begin with all tokens before it. */
function assertContiguous(output: readonly Item[]): void {
  const replies = output.filter((item) => item.generation_token_ids)
  assert.deepEqual(
    replies.map(({ type }) => type),
    ['function_call', 'message'],
  )
  let before: readonly number[] = []
  for (const {
    prompt_token_ids: prompt = [],
    generation_token_ids: ids = [],
    generation_log_probs: logprobs,
  } of replies) {
    assert.deepEqual(prompt.slice(0, before.length), before)
    assert.equal(logprobs?.length, ids.length)
    before = [...prompt, ...ids]
  }
}

function sessionOf({ headers }: ServedRequest): string[] {
  const session = headers['x-session-id']
  return typeof session === 'string' && session.startsWith('ses_') ? [session] : []
}

/** An engine like vLLM whose tokens are characters: it calls the tool with the number that the user wrote, and then says what it got. */
function answer(response: ServerResponse, { method, body }: ServedRequest): void {
  if (method === 'GET') return sendJson(response, { object: 'list', data: [{ id: 'policy', object: 'model' }] })
  const { messages, tools = [] } = JSON.parse(body) as Partial<ChatBody>
  // The gateway asks what the server is.
  if (!messages) return sendJson(response, { error: { message: 'messages are missing' } }, 400)
  const last = messages.at(-1)
  const [tool] = tools
  const count = /-?\d+/.exec(messages.find(({ role }) => role === 'user')?.content ?? '')?.[0] ?? '1'
  const calls =
    last?.role === 'user' && tool
      ? [{ id: 'call_1', type: 'function', function: { name: tool.function.name, arguments: `{"count":${count}}` } }]
      : undefined
  const said = { role: 'assistant', content: calls ? null : `The tool said: ${last?.content}` }
  const message = { ...said, ...(calls && { tool_calls: calls }) }
  const prompt = idsOf(messages.map(written).join(''))
  const ids = idsOf(written(message))
  const content = ids.map((id) => ({ token: String.fromCodePoint(id), logprob: -1, bytes: null }))
  const choice = {
    index: 0,
    message,
    finish_reason: calls ? 'tool_calls' : 'stop',
    token_ids: ids,
    logprobs: { content },
  }
  const usage = {
    prompt_tokens: prompt.length,
    completion_tokens: ids.length,
    total_tokens: prompt.length + ids.length,
  }
  sendJson(response, chatReply('', { choices: [choice], usage, prompt_token_ids: prompt }))
}

function written({ role, content, tool_calls: calls = [] }: Said): string {
  return `<${role}>${content ?? ''}${calls.map((call) => JSON.stringify(call.function)).join('')}`
}

function idsOf(text: string): number[] {
  return Array.from(text, (character) => character.codePointAt(0) ?? 0)
}
