import { expect, test } from 'vitest'
import { ToolBox } from '../../tool-box.ts'
import { ToolAnswer } from '../../tool.ts'
import type { ServerConfig } from '../config/server-config.ts'
import type { ServerAnswer, ServerCall } from '../transports/pending-calls.ts'
import { exposedNames, type McpToolContext, mcpTools } from './mcp-tools.ts'
import type { ServerTool } from './tool-catalogue.ts'

const { signal } = new AbortController()
const command = { command: 'node' }
const inputSchema = { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] }

function listed(server: string, ...tools: (Partial<ServerTool> & { name: string })[]) {
  const usual = { server, inputSchema, isReadOnly: false, isIdempotent: false }
  return { server, tools: tools.map((tool) => Object.assign({}, usual, tool)), digest: server }
}

function toolOf(config: ServerConfig, tool: Partial<ServerTool> = {}) {
  const made = mcpTools([listed('web', { name: 'search', ...tool })], { web: config })['search']
  if (!made) throw new Error('no tool was made')
  return made
}

/** Servers that answer with what they are told to, and remember what they were asked. */
function answering(answer: Partial<ServerAnswer> = {}) {
  const calls: (ServerCall & { server: string })[] = []
  const servers: McpToolContext['servers'] = {
    call: (server, call) => {
      calls.push({ server, ...call })
      const detail = { server, generation: 1, attempts: 1 }
      return Promise.resolve({ content: 'found', isError: false, detail, ...answer })
    },
  }
  return { calls, servers }
}

test('a tool holds its description and its origin', () => {
  const tool = toolOf(command, { description: 'Finds.' })
  expect(tool).toMatchObject({ description: 'Finds.', origin: { server: 'web', name: 'search' } })
  const { definitions } = new ToolBox(mcpTools([listed('web', { name: 'search' })], { web: command }))
  expect(definitions[0]?.function).toEqual({ name: 'search', parameters: inputSchema })
})

test('a prefix precedes the name, and the server gets its own name', async () => {
  const catalogues = [listed('web', { name: 'search' }), listed('files', { name: 'search' })]
  expect(() => mcpTools(catalogues, { web: command, files: command })).toThrow(/"web" and "files".*"prefix"/)
  const tools = mcpTools(catalogues, { web: { ...command, prefix: 'web_' }, files: command })
  expect(Object.keys(tools)).toEqual(['web_search', 'search'])
  const { calls, servers } = answering()
  await tools['web_search']?.run({ q: 'a' }, { servers, signal })
  expect(calls).toMatchObject([{ server: 'web', tool: 'search', arguments: { q: 'a' } }])
})

test.each<[string, ServerConfig, Partial<ServerTool>, string]>([
  ['a process of its own may have changed', command, {}, 'restart'],
  ['what only reads has not', command, { isReadOnly: true }, 'reuse'],
  ['what is shared keeps nothing', { ...command, sharing: 'shared' }, {}, 'reuse'],
  ['what is configured counts', { ...command, resume: 'rerun' }, { isReadOnly: true }, 'rerun'],
])('resume rule of a tool: %s', (_why, config, tool, resume) => {
  expect(toolOf(config, tool).resume).toBe(resume)
})

test.each<[string, ServerConfig, Partial<ServerTool>, boolean]>([
  ['what one call changes the next one sees', command, {}, true],
  ['also where to repeat it does no harm', command, { isIdempotent: true }, true],
  ['also at a URL', { url: 'http://a.test' }, {}, true],
  ['what only reads changes nothing', command, { isReadOnly: true }, false],
  ['what is shared keeps nothing', { ...command, sharing: 'shared' }, {}, false],
  ['what is configured counts', { ...command, parallel: true }, {}, false],
  ['also for what is shared', { ...command, sharing: 'shared', parallel: false }, {}, true],
])('calls of one turn run alone or in parallel: %s', (_why, config, tool, isExclusive) => {
  expect(toolOf(config, tool).exclusive ?? false).toBe(isExclusive)
})

test('the tool box timeout exceeds the session timeout, also for a server that is away', () => {
  expect(toolOf(command).timeoutMs).toBe(785_000)
  expect(toolOf({ ...command, callTimeoutMs: 1_000, startTimeoutMs: 500, awayTimeoutMs: 2_000 }).timeoutMs).toBe(9_000)
  expect(toolOf({ ...command, required: false }).timeoutMs).toBe(125_000)
})

test('the timeout of a call is the remaining time of the rollout', async () => {
  const { calls, servers } = answering()
  const tool = toolOf(command)
  await tool.run({ q: 'a' }, { servers, signal, budget: { workingMsLeft: 300, wallMsLeft: 200 } })
  await tool.run({ q: 'a' }, { servers, signal, budget: { workingMsLeft: Infinity, wallMsLeft: Infinity } })
  expect(calls.map(({ timeoutMs }) => timeoutMs)).toEqual([200, undefined])
})

test.each<[string, Partial<ServerAnswer>, object]>([
  ['text', {}, { output: 'found', isError: false, detail: { server: 'web', generation: 1, attempts: 1 } }],
  ['a failure', { isError: true }, { output: 'found', isError: true }],
  ['structure beside text', { structured: { n: 1 } }, { output: 'found' }],
])('an answer with %s becomes a tool answer', async (_what, answer, expected) => {
  const { servers } = answering(answer)
  const output = await toolOf(command).run({ q: 'a' }, { servers, signal })
  expect(output).toBeInstanceOf(ToolAnswer)
  expect(output).toMatchObject(expected)
})

test('V3.8 the model is told that its server restarted', async () => {
  const detail = { server: 'web', generation: 2, attempts: 1, sessionRestarted: true } as const
  const text = answering({ detail })
  const parts = answering({ detail, content: [{ type: 'text', text: 'found' }] })
  const run = (servers: McpToolContext['servers']) => toolOf(command).run({ q: 'a' }, { servers, signal })
  const note = expect.stringContaining('"web" was restarted')
  expect(await run(text.servers)).toMatchObject({ output: note, detail: { sessionRestarted: true } })
  expect(await run(parts.servers)).toMatchObject({ output: [{ type: 'text', text: note }, { text: 'found' }] })
})

test('arguments are checked before the server is called', async () => {
  const { calls, servers } = answering()
  const box = new ToolBox<McpToolContext>(mcpTools([listed('web', { name: 'search' })], { web: command }))
  const call = { id: '1', type: 'function', function: { name: 'search', arguments: '{"q":1}' } } as const
  const [result] = await box.call([call], { context: { servers, signal }, signal })
  expect(result?.record.status).toBe('bad_arguments')
  expect(result?.message.content).toContain('q: expected string, got number')
  expect(calls).toEqual([])
})

const of = (server: string, ...names: string[]) => names.map((wanted) => ({ server, wanted }))
const legal = /^[a-zA-Z0-9_-]{1,64}$/

test('names accepted by every model API stay unchanged', () => {
  expect(exposedNames(of('a', 'read', 'Write-2', '_x'))).toEqual(['read', 'Write-2', '_x'])
})

test('other names are mapped to accepted ones, the same each time', () => {
  const tools = of('a', 'files.read', 'files/write all', 'größe', '', 'x'.repeat(65), `${'x'.repeat(65)}y`)
  const names = exposedNames(tools)
  expect(names.slice(0, 4)).toEqual(['files_read', 'files_write_all', 'gr_e', '_'])
  expect(names[4]).toMatch(/^x{55}_[0-9a-f]{8}$/)
  for (const name of names) expect(name).toMatch(legal)
  expect(new Set(names).size).toBe(names.length)
  expect(exposedNames(tools)).toEqual(names)
})

test('a mapped name never equals the name of another tool', () => {
  const [dotted, plain, slashed] = exposedNames([
    ...of('a', 'files.read'),
    ...of('b', 'files_read'),
    ...of('c', 'files/read'),
  ])
  expect(plain).toBe('files_read')
  expect(dotted).toMatch(/^files_read_[0-9a-f]{8}$/)
  expect(slashed).toMatch(/^files_read_[0-9a-f]{8}$/)
  expect(dotted).not.toBe(slashed)
})

test('two servers with one name are refused, with a solution', () => {
  expect(() => exposedNames([...of('web', 'search'), ...of('files', 'search')])).toThrow(
    '[config_invalid] the tool servers "web" and "files" both have a tool "search": set "prefix" for one of them, such as "prefix": "files_"',
  )
})
