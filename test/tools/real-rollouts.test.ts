/** Rollouts with servers from npm. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Message, ServerConfig } from 'millrace'
import { calls } from 'millrace/testing'
import { expect, test } from 'vitest'
import { Semaphore } from '../../src/kit/index.ts'
import { calling } from '../support/tools/session-with.ts'
import { McpSession } from '../../src/tools/mcp/session/mcp-session.ts'
import { failureOf } from '../support/tools/failure-of.ts'
import { everythingOver, npmServer } from '../support/tools/npm-servers.ts'
import { isRunning, liveDescendants } from '../support/tools/processes.ts'
import { environmentWith, startRollouts } from '../support/tools/rollouts-with-servers.ts'
import { temporaryFolder } from '../support/tools/temporary-folder.ts'

const sessionOn = (config: ServerConfig): McpSession =>
  new McpSession({ name: 'real', config, starts: new Semaphore(1), onEvent: () => {} })

const toolResults = (messages: readonly Message[]): unknown[] =>
  messages.filter(({ role }) => role === 'tool').map(({ content }) => content)

test('server-everything over stdio, Streamable HTTP and SSE in one rollout', async () => {
  await using http = await everythingOver('streamableHttp')
  await using sse = await everythingOver('sse')
  const before = liveDescendants()
  const environment = environmentWith({
    stdio: { ...npmServer('everything'), prefix: 'stdio_', env: { GREETING: 'hello' } },
    http: { ...http.config, prefix: 'http_' },
    sse: { ...sse.config, prefix: 'sse_' },
  })
  const turns = ['stdio', 'http', 'sse'].map((server) => {
    const tools = {
      echo: { message: `over ${server}` },
      'get-structured-content': { location: 'New York' },
      'get-tiny-image': {},
      'get-resource-reference': { resourceType: 'Text', resourceId: 1 },
      'trigger-long-running-operation': { duration: 0.1, steps: 2 },
      'get-sum': { a: 1, b: 'two' },
    }
    return calls(Object.fromEntries(Object.entries(tools).map(([name, given]) => [`${server}_${name}`, given])))
  })
  const environmentTurn = calls({ 'stdio_get-env': {} })
  await using run = await startRollouts(
    environment,
    ({ messages }) => [...turns, environmentTurn][messages.filter(({ role }) => role === 'assistant').length] ?? 'done',
  )
  const [record] = await Array.fromAsync(run.evaluation)
  expect(record).toMatchObject({ outcome: 'completed', toolCalls: 19, toolErrors: 3 })
  const results = toolResults(record?.messages ?? [])
  for (const [index, server] of ['stdio', 'http', 'sse'].entries()) {
    const [echo, structured, image, resource, long, sum] = results.slice(index * 6, index * 6 + 6)
    expect(echo).toBe(`Echo: over ${server}`)
    expect(structured).toContain('"temperature":33')
    expect(image).toContainEqual({
      type: 'image_url',
      image_url: { url: expect.stringMatching(/^data:image\/png;base64,iVBOR/) },
    })
    expect(resource).toMatch(/Resource 1: This is a plaintext resource[^]*demo:\/\/resource/)
    expect(long).toContain('Long running operation completed')
    expect(sum).toContain('b: ')
  }
  // The server has its own variables, and none of ours.
  const variables = JSON.parse(String(results.at(-1))) as Record<string, string>
  expect(variables['GREETING']).toBe('hello')
  expect(variables['VITEST']).toBeUndefined()
  expect(liveDescendants()).toEqual(before)
})

test('server-everything: an aborted long operation is cancelled, and the session continues', async () => {
  const before = liveDescendants()
  const session = sessionOn(npmServer('everything'))
  const leaving = new AbortController()
  const received: number[] = []
  const long = session.call({
    ...calling('trigger-long-running-operation', { duration: 600, steps: 60_000 }),
    signal: leaving.signal,
    onProgress: ({ progress }) => received.push(progress),
  })
  await expect.poll(() => received.length).toBeGreaterThan(1)
  leaving.abort('enough')
  await expect(long).rejects.toBe('enough')
  expect(await session.call(calling('echo'))).toMatchObject({ content: 'Echo: hi', detail: { generation: 1 } })
  await session.close()
  expect(liveDescendants()).toEqual(before)
})

test('server-memory: rollouts do not see the memory of others', async () => {
  await using folder = await temporaryFolder()
  const { command, args } = npmServer('memory')
  // It remembers in a file, which each process is given for itself: that of a rollout is its own.
  const own = 'MEMORY_FILE_PATH="$0/$$.jsonl" exec "$@"'
  const memory = { command: 'sh', args: ['-c', own, folder.path, command, ...args] }
  const rollouts = 3
  let written = 0
  const allWrote = Promise.withResolvers<void>()
  const environment = environmentWith({ memory }, { count: rollouts })
  await using run = await startRollouts(environment, async ({ messages }) => {
    const name = String(messages[0]?.content)
    const answered = toolResults(messages).length
    if (answered === 0) return calls({ create_entities: { entities: [entity(name)] } })
    if (answered === 2) return 'done'
    written += 1
    if (written === rollouts) allWrote.resolve()
    await allWrote.promise
    return calls({ read_graph: {} })
  })
  const records = await Array.fromAsync(run.evaluation)
  expect(records.map(({ outcome }) => outcome)).toEqual(Array.from({ length: rollouts }, () => 'completed'))
  for (const { messages } of records) {
    const graph = JSON.parse(String(toolResults(messages)[1])) as { entities: { name: string }[] }
    expect(graph.entities.map(({ name }) => name)).toEqual([messages[0]?.content])
  }
})

const entity = (name: string) => ({ name, entityType: 'task', observations: [`seen in ${name}`] })

test('server-filesystem: after a kill during a call, a read is repeated and an edit is not', async () => {
  await using folder = await temporaryFolder()
  const path = join(folder.path, 'note.txt')
  await writeFile(path, 'as it was')
  await using session = sessionOn(npmServer('filesystem', folder.path))
  await session.open()
  const server = (): number => liveDescendants().find(({ command }) => command.includes(folder.path))?.pid ?? Number.NaN
  /** Written to a process that does not read any more, and then is gone. */
  const cutOff = async (tool: string, given: Record<string, unknown>) => {
    const pid = server()
    process.kill(pid, 'SIGSTOP')
    const call = session.call(calling(tool, given))
    process.kill(pid, 'SIGKILL')
    return await call
  }
  expect(await cutOff('read_text_file', { path })).toMatchObject({
    content: 'as it was',
    detail: { generation: 2, attempts: 2 },
  })
  const edit = cutOff('edit_file', { path, edits: [{ oldText: 'was', newText: 'is' }] })
  expect(await failureOf(edit)).toMatchObject({
    code: 'tool_infra',
    data: { server: 'real', tool: 'edit_file', attempt: 1, signal: 'SIGKILL', mayHaveRun: true },
  })
  expect(await readFile(path, 'utf8')).toBe('as it was')
  await session.call(calling('read_text_file', { path }))
  const last = server()
  expect(isRunning(last)).toBe(true)
  await session.close()
  expect(isRunning(last)).toBe(false)
})
