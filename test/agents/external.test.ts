/** Programs as agents: what they say is recorded, and nothing is left of them. */
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import {
  defineEnvironment,
  evaluate,
  external,
  MillraceError,
  refine,
  textOf,
  z,
  type Agent,
  type ExternalOptions,
} from 'millrace'
import { runScripted, temporaryRuns, type Script } from 'millrace/testing'
import { afterAll, expect, test } from 'vitest'
import python from '../../examples/external/environment.ts'
import arithmetic from '../../examples/arithmetic/environment.ts'
import { cutAnywhere } from '../support/agents/cut-anywhere.ts'
import { startMillrace } from '../support/cli/millrace-process.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { liveDescendants } from '../support/tools/processes.ts'

const example = (name: string) => fileURLToPath(new URL(`../../examples/external/${name}`, import.meta.url))

const questions = (agent: Agent, more: object = {}) =>
  defineEnvironment({
    name: 'questions',
    task: z.object({ question: z.string() }),
    tasks: () => [{ question: 'Who?' }],
    prompt: ({ task }) => task.question,
    agent,
    reward: ({ answer }) => answer === 'me',
    ...more,
  })

const tools = JSON.stringify([{ type: 'function', function: { name: 'read', parameters: { type: 'object' } } }])

const ask = (content: string, model = '$MILLRACE_MODEL', offered = '[]') =>
  `curl -sSf $MILLRACE_URL/chat/completions -H "authorization: Bearer $MILLRACE_KEY" ` +
  `-d '{"model":"'${model}'","messages":[{"role":"user","content":"${content}"}],"tools":${offered}}' >reply`

async function runOne(options: ExternalOptions, script: Script = () => 'me', more: object = {}) {
  const { records } = await runScripted({ environment: questions(external(options)), script, retries: 0, ...more })
  const [record] = records
  if (!record) throw new Error('no rollout')
  return record
}

// Others on this machine have folders of their own for programs.
const temporary = await mkdtemp(join(tmpdir(), 'millrace-external-'))
process.env['TMPDIR'] = temporary
afterAll(() => rm(temporary, { recursive: true }))

const folders = async () => (await readdir(temporary)).filter((name) => /^millrace-[\da-f-]{36}\.\d+$/.test(name))

test.each([
  ['Python', python, undefined, 2],
  ['bash and curl', arithmetic, { name: 'external', command: ['bash', example('agent.sh')] }, 1],
] as const)('an agent in %s solves sums, and is recorded to the token', async (_, environment, agent, turns) => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment,
    ...(agent && { agent }),
    model: 'sim',
    limit: 8,
    captureTokens: true,
    run: { root: runs.root },
  })
  for await (const record of evaluation) {
    expect(record).toMatchObject({ outcome: 'completed', reward: 1, turns, children: 0 })
    expect(record.usage).toMatchObject({ calls: turns, captured: turns })
    expect(record.usage.driftedTurns ?? 0).toBe(0)
  }
  expect(await folders()).toEqual([])
})

test('a program gets the prompt, the task if it is to, few variables and a folder of its own', async () => {
  const said = `printf '%s|' "$(cat)" "$MILLRACE_PROMPT" "$MILLRACE_TASK" "$MORE" "$HIDDEN" "$(ls -A)"`
  process.env['HIDDEN'] = 'ours'
  const record = await runOne({ command: said, env: { MORE: 'more' }, task: true })
  // The task may have the solution.
  const without = await runOne({ command: said, env: { MORE: 'more' } })
  delete process.env['HIDDEN']
  expect(record).toMatchObject({ outcome: 'completed', answer: 'Who?|Who?|{"question":"Who?"}|more|||' })
  expect(without).toMatchObject({ outcome: 'completed', answer: 'Who?|Who?||more|||' })
  expect(record.messages?.map(textOf)).toEqual(['Who?', record.answer])
})

test('the answer is the last reply of the conversation, or what the program prints', async () => {
  const command = `${ask('Who is it?')}; echo you`
  expect(await runOne({ command })).toMatchObject({ answer: 'me', reward: 1, turns: 1 })
  const output = await runOne({ command, answer: 'output' })
  expect(output).toMatchObject({ answer: 'you', reward: 0 })
  expect(output.messages?.map(textOf)).toEqual(['Who is it?', 'me', 'you'])
})

test.each([
  [
    'after a summary, the one that came last',
    `${ask('a')}; ${ask('summary')}`,
    're summary',
    ['a', 're a', 're summary'],
  ],
  ['not that of another model', `${ask('a')}; ${ask('title', 'small-one')}`, 're a', ['a', 're a']],
  ['not that of a request without the tools', `${ask('a', undefined, tools)}; ${ask('title')}`, 're a', ['a', 're a']],
])('the reply that is the answer: %s', async (_, command, answer, messages) => {
  const record = await runOne({ command }, ({ messages: [said] }) => `re ${said ? textOf(said) : ''}`)
  expect(record).toMatchObject({ outcome: 'completed', answer })
  expect(record.messages?.map(textOf)).toEqual(messages)
})

test('a program that fails has no reward, and its last words are shown', async () => {
  const failed = await runOne({ command: `${ask('a')}; echo out of ideas >&2; exit 3` })
  expect(failed).toMatchObject({
    outcome: 'agent_error',
    reward: null,
    error: { message: "program 'sh' exited with code 3; its stderr ended with: out of ideas", data: { exitCode: 3 } },
  })
  const line = await runOne({ command: 'TOKEN=abc123 sh -c "exit 3"' })
  expect(line.error).toEqual({
    code: 'agent_failed',
    message: "program 'sh' exited with code 3",
    data: { program: 'sh', exitCode: 3, signal: null },
  })
  expect(await runOne({ command: 'no-such-program' })).toMatchObject({
    error: { message: expect.stringMatching(/^program 'sh' exited with code 127; .*no-such-program: .*not found/) },
  })
  expect(await runOne({ command: ['no-such-program'] })).toMatchObject({
    outcome: 'agent_error',
    error: { message: expect.stringContaining(`there is no command 'no-such-program'`) },
  })
})

const failingFor =
  (text: string, error: unknown = new Error('down')): Script =>
  ({ messages }) => {
    if (messages.some((message) => textOf(message) === text)) throw error
    return 'me'
  }

test.each([
  ['fails with it', ask('b')],
  ['exits with 0', `${ask('a')}; ${ask('b')}; true`],
  ['prints an answer', `${ask('a')}; ${ask('b')} || echo me`],
  ['had asked in another conversation', `${ask('a')}; ${ask('b', 'small-one')}; true`],
])('if the last model call of a program failed, and the program %s, the model is to blame', async (_, command) => {
  const ended = { outcome: 'model_error', reward: null }
  expect(await runOne({ command }, failingFor('b'))).toMatchObject(ended)
  expect(await runOne({ command, answer: 'output' }, failingFor('b'))).toMatchObject(ended)
})

test('a failed call that the program recovered from does not count', async () => {
  const tooLong = new MillraceError('context_length', 'too long')
  const command = `${ask('a')}; ${ask('b')}; ${ask('c')}`
  expect(await runOne({ command }, failingFor('b', tooLong))).toMatchObject({ outcome: 'completed', truncated: false })
  expect(await runOne({ command: `${command}; exit 1` }, failingFor('b', tooLong))).toMatchObject({
    outcome: 'agent_error',
  })
})

const post = (path: string, body: string) =>
  `curl -sS "$MILLRACE_URL${path}" -H "authorization: Bearer $MILLRACE_KEY" -d '${body}' >reply`

test.each([
  ['a field that is not supported', post('/responses', '{"model":"m","input":"a","previous_response_id":"r"}')],
  ['several choices', post('/chat/completions', '{"model":"m","messages":[{"role":"user","content":"a"}],"n":2}')],
  ['no JSON', post('/messages', 'a')],
  ['a wrong base URL', post('/v1/messages', '{}')],
  ['an API that is not there', post('/completions', '{"model":"m","prompt":"a"}')],
])('if the last model call of a program was refused, the outcome is agent_error: %s', async (_, refused) => {
  const failed = await runOne({ command: `${refused}; echo me` })
  expect(failed).toMatchObject({
    outcome: 'agent_error',
    reward: null,
    error: { message: expect.stringContaining(`the program's last model call was refused: `) },
  })
  expect(await runOne({ command: `${ask('a')}; ${refused}` })).toMatchObject({ outcome: 'agent_error', turns: 1 })
  expect(await runOne({ command: `${refused}; ${ask('a')}` })).toMatchObject({ outcome: 'completed', reward: 1 })
})

test('a refused request that is no model call does not count', async () => {
  const probes = [
    post('/messages/count_tokens', '{}'),
    post('/embeddings', '{}'),
    'curl -sS "$ANTHROPIC_BASE_URL"',
    'curl -sSI "$MILLRACE_URL/messages"',
    'curl -sS "$MILLRACE_URL/responses/resp_1"',
  ].join('; ')
  expect(await runOne({ command: `${ask('a')}; ${probes}` })).toMatchObject({ outcome: 'completed', reward: 1 })
})

test('a limit of the rollout ends the program', async () => {
  const command = `${ask('a')}; ${ask('b')}; exec sleep 600`
  expect(await runOne({ command }, () => 'me', { limits: { maxTurns: 1 } })).toMatchObject({
    outcome: 'max_turns',
    truncated: true,
    reward: 1,
  })
  const slow = await runOne({ command: 'sleep 600' }, () => 'me', { limits: { timeoutMs: 300 } })
  expect(slow).toMatchObject({ outcome: 'agent_timeout' })
  expect(liveDescendants().filter(({ command: each }) => each.includes('sleep 600'))).toEqual([])
})

/** Three processes: one in the program's group, one in a session of its own, and all deaf to SIGTERM. */
const crowd = `trap "" TERM; setsid sleep 601 & sleep 601 & ${ask('a')}; touch ready; wait`

test('a rollout that is cancelled leaves no process, folder or socket', async () => {
  await using runs = await temporaryRuns()
  const before = activeResources()
  const stop = new AbortController()
  const run = evaluate({
    environment: questions(external({ command: crowd })),
    attempts: 3,
    model: 'sim',
    run: { root: runs.root },
    signal: stop.signal,
  })
  const ended = run.summary()
  const ready = async () =>
    (await folders()).filter((name) => existsSync(join(temporary, name, 'work', 'ready'))).length
  await expect.poll(ready).toBe(3)
  expect(liveDescendants().filter(({ command }) => command === 'sleep 601')).toHaveLength(6)
  stop.abort()
  await ended.catch(() => {})
  expect(liveDescendants()).toEqual([])
  expect(await folders()).toEqual([])
  expect(await leftSince(before)).toEqual([])
})

test('SIGKILL of Millrace leaves no process and no folder', async () => {
  await using runs = await temporaryRuns()
  const words = ['eval', 'arithmetic', '-m', 'sim', '--limit', '2', '--agent', 'external', `--agent.command=${crowd}`]
  const running = startMillrace({ cwd: runs.root }, ...words)
  const { pid = 0 } = running.process
  const sleepers = () => liveDescendants(pid).filter(({ command }) => command === 'sleep 601')
  await expect.poll(() => sleepers().length).toBe(4)
  const all = sleepers()
  running.process.kill('SIGKILL')
  await expect.poll(() => all.filter((each) => existsSync(`/proc/${each.pid}`))).toEqual([])
  await expect.poll(folders).toEqual([])
  await running.ended
})

test('a service ends the rollout with its reply', async () => {
  const server = createServer(async (request, response) => {
    const asked = JSON.parse(Buffer.concat(await request.toArray()).toString()) as Record<string, string>
    const task = request.url === '/run' ? { question: 'Who?' } : undefined
    expect(asked).toEqual({ task, prompt: 'Who?', model: 'scripted', url: expect.any(String), key: expect.any(String) })
    if (request.url === '/broken') return response.writeHead(500).end('no idea')
    const body = JSON.stringify({ model: asked['model'], messages: [{ role: 'user', content: 'Who is it?' }] })
    const headers = { authorization: `Bearer ${asked['key']}` }
    await (await fetch(`${asked['url']}/chat/completions`, { method: 'POST', headers, body })).text()
    return response.end(JSON.stringify({ answer: 'you' }))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  expect(await runOne({ url: `${url}/run`, task: true })).toMatchObject({
    outcome: 'completed',
    answer: 'me',
    turns: 1,
  })
  expect(await runOne({ url, answer: 'output' })).toMatchObject({ outcome: 'completed', answer: 'you', turns: 1 })
  expect(await runOne({ url: `${url}/broken` })).toMatchObject({
    outcome: 'agent_error',
    error: { message: `${url}/broken replied with status 500: no idea` },
  })
  const down = () => {
    throw new Error('down')
  }
  expect(await runOne({ url, answer: 'output' }, down)).toMatchObject({ outcome: 'model_error', reward: null })
  server.close()
  server.closeAllConnections()
  await once(server, 'close')
  expect(await runOne({ url })).toMatchObject({ outcome: 'agent_error' })
})

test('a rollout that was cut off goes on with the program started again, and is replayed', async () => {
  const script: Script = ({ messages }) =>
    messages.at(-1)?.role === 'tool'
      ? 'Answer: 3'
      : {
          role: 'assistant',
          content: null,
          tool_calls: [
            { id: 'c1', type: 'function', function: { name: 'calculator', arguments: '{"expression":"1+2"}' } },
          ],
        }
  const [whole, ...cut] = await cutAnywhere(python, script)
  expect(whole).toMatchObject({ record: { outcome: 'completed', turns: 2 }, replay: ['identical'] })
  expect(cut).toHaveLength(2)
  for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
})

test('a rollout whose program asks several things at once goes on, and is replayed', async () => {
  // The title is asked for before the first reply is there; a repetition has that at once.
  const command = `${ask('a')} & sleep 0.1; ${ask('title', 'small-one')} & wait; ${ask('title', 'small-one')}; ${ask('b')}`
  const script: Script = async ({ messages: [message] }) => {
    if (message?.content === 'a') await sleep(500)
    return `re ${String(message?.content)}`
  }
  const [whole, ...cut] = await cutAnywhere(questions(external({ command })), script)
  expect(whole).toMatchObject({ record: { outcome: 'completed', turns: 1, children: 2 }, replay: ['identical'] })
  expect(cut).toHaveLength(3)
  for (const run of cut) expect(run, `cut at ${run.cutAt}`).toEqual({ ...whole, cutAt: run.cutAt })
})

test('another agent may have a program at work, which answers what was said last', async () => {
  const agent = refine({ turns: 2, agent: external({ command: 'tail -c 21' }) })
  const { records } = await runScripted({ environment: questions(agent), script: () => 'not asked' })
  expect(records[0]?.messages?.map(textOf)).toEqual([
    'Who?',
    'Who?',
    'The reward of this answer is 0, so it is not right yet.',
    'it is not right yet.',
  ])
})

test.each<[ExternalOptions, string]>([
  [{}, 'external() needs either a `command` or a `url`'],
  [{ command: 'true', url: 'http://127.0.0.1/' }, 'external() takes a `command` or a `url`, not both'],
  [{ url: 'http://127.0.0.1/', env: { MORE: 'more' } }, '`env` and `cwd` are for a `command`'],
  [{ url: 'http://127.0.0.1/', cwd: '/tmp' }, '`env` and `cwd` are for a `command`'],
  [{ url: 'ftp://somewhere' }, 'url: must be an address, such as http://127.0.0.1:5000/run'],
  [{ command: '' }, 'command: must not be empty'],
  [{ command: [] }, 'command: must not be empty'],
])('%j is refused', (options, message) => {
  expect(() => external(options)).toThrow(message)
})

test('an environment whose tools are written in text is refused', async () => {
  const environment = questions(external({ command: 'true' }), { toolFormat: 'hermes' })
  const { records } = await runScripted({ environment, script: () => 'me' })
  expect(records).toMatchObject([{ outcome: 'agent_error', error: { message: expect.stringContaining('toolFormat') } }])
})

test('tools of a program are refused, too, if it works for another agent', async () => {
  const environment = (offered: string) =>
    questions(refine({ agent: external({ command: ask('a', undefined, offered) }) }), { toolFormat: 'hermes' })
  const refused = await runScripted({ environment: environment(tools), script: () => 'me' })
  expect(refused.records).toMatchObject([
    { outcome: 'agent_error', error: { message: expect.stringContaining('leave out the tool format') } },
  ])
  const { records } = await runScripted({ environment: environment('[]'), script: () => 'me' })
  expect(records).toMatchObject([{ outcome: 'completed' }])
})
