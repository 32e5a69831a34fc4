import { nearestName } from '../../kit/index.ts'
import { defineCommand, type FlagTable, type FlagValues, type Invocation } from '../command-line/command.ts'
import { maxPort } from '../command-line/common-flags.ts'
import { evalPrefixes } from '../eval/eval-flags.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { usageError } from '../command-line/flag-value.ts'
import { Interrupts } from '../process/interrupts.ts'
import { ForeignOutput } from '../process/foreign-output.ts'
import type { CommandIo } from '../process/io.ts'

const toolsFlags = {
  server: {
    kind: 'text',
    value: '<name>',
    group: 'list, doctor',
    help: 'Only this server. [default: all of them]',
  },
  arg: {
    kind: 'texts',
    value: '<name>=<value>',
    group: 'call',
    help: 'An argument, instead of JSON; may be given several times. What reads as JSON is JSON, unless the tool wants text.',
  },
  task: {
    kind: 'integer',
    value: '<number>',
    group: 'call, serve',
    help: 'The task that an environment’s own tools work on, from 0.',
    default: '0',
  },
  http: {
    kind: 'integer',
    value: '<port>',
    max: maxPort,
    group: 'serve',
    help: 'Serve over HTTP on this machine; 0 for any free port. [default: standard input and output]',
  },
  json: { kind: 'switch', group: 'list, call, doctor', help: 'As one JSON object.' },
} as const satisfies FlagTable

type Flags = FlagValues<typeof toolsFlags>

interface Action {
  readonly flags: readonly (keyof Flags)[]
  /** The number of arguments after the configuration. */
  readonly extra: number
  run(invocation: Invocation<typeof toolsFlags>, around: { io: CommandIo; signal: AbortSignal }): Promise<ExitCode>
}

/** The actions. Each is loaded only when it is used: listing tools must not load an HTTP server. */
const actions: Readonly<Record<string, Action>> = {
  list: {
    flags: ['server', 'json'],
    extra: 0,
    run: async (invocation, around) => {
      const { server, json: asJson = false } = invocation.flags
      const { listTools } = await import('../tools/list-tools.ts')
      return await listTools(await sourceOf(invocation, around.io), { server, asJson }, around)
    },
  },
  call: {
    flags: ['arg', 'task', 'json'],
    extra: 2,
    run: async (invocation, around) => {
      const { flags } = invocation
      const [, , tool, json] = invocation.arguments
      if (tool === undefined) throw usageError('millrace tools call needs a tool: millrace tools call <config> <tool>')
      const { arg: pairs = [], task, json: asJson = false } = flags
      const { callTool } = await import('../tools/call-tool.ts')
      return await callTool(await sourceOf(invocation, around.io), { tool, json, pairs, task, asJson }, around)
    },
  },
  doctor: {
    flags: ['server', 'json'],
    extra: 0,
    run: async (invocation, around) => {
      const { server, json: asJson = false } = invocation.flags
      const { examineServers } = await import('../tools/examine-servers.ts')
      return await examineServers(await sourceOf(invocation, around.io), { server, asJson }, around)
    },
  },
  serve: {
    flags: ['task', 'http'],
    extra: 0,
    run: async ({ arguments: [, name = ''], flags: { task, http }, prefixed }, around) => {
      const { environmentName, isServerFile } = await import('../tools/tool-source.ts')
      if (isServerFile(name)) {
        throw usageError(
          `millrace tools serve takes an environment, whose own tools it serves; ${name} is a file of servers, which any MCP client can open itself`,
        )
      }
      const { loadEnvironment } = await import('../../env/index.ts')
      const load = () => loadEnvironment(environmentName(name), prefixed['env'] ?? {}, { cwd: around.io.cwd })
      const { serveEnvironmentTools } = await import('../tools/serve-tools.ts')
      return await serveEnvironmentTools({ load, task, http }, around)
    },
  },
}

export const toolsCommand = defineCommand({
  name: 'tools',
  description:
    'list: opens all servers at once and shows what they offer. call: calls one tool, by its name or as server.tool, and shows ' +
    'what it answers. doctor: finds out why a server will not start, step by step, and what it will cost. serve: offers an ' +
    'environment’s own tools to any MCP client, with a state of its own for each session.',
  arguments: [
    { name: 'action', required: true, help: 'an action: list, call, doctor or serve' },
    {
      name: 'config',
      required: true,
      help: 'a .json file with mcpServers, or an environment: its path or name, also as environment:<name>',
    },
    { name: 'tool', required: false, help: 'for call: the tool, or server.tool' },
    { name: 'arguments', required: false, help: 'for call: its arguments, as a JSON object' },
  ],
  flags: toolsFlags,
  prefixes: { env: { ...evalPrefixes.env, group: 'Environment' } },
  examples: [
    { command: 'millrace tools list servers.json', explanation: 'what the servers of a file offer' },
    { command: `millrace tools call servers.json web.search '{"query": "tide"}'`, explanation: 'one call, as JSON' },
    { command: 'millrace tools call servers.json search --arg query=tide', explanation: 'the same, without quoting' },
    { command: 'millrace tools doctor servers.json --server web', explanation: 'why it will not start' },
    { command: 'millrace tools serve guess-number --http 3333', explanation: 'the tools of an example, over HTTP' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'done; serve: its client has gone, or it was interrupted' },
    { code: exitCodes.failed, meaning: 'a server that is required did not open, or the tool failed' },
    {
      code: exitCodes.usage,
      meaning: 'the command line or the configuration is wrong, also of a server that is not required',
    },
    { code: exitCodes.interrupted, meaning: 'interrupted by Ctrl-C' },
  ],
  async run(invocation, io) {
    const [name = ''] = invocation.arguments
    const action = Object.hasOwn(actions, name) ? actions[name] : undefined
    if (!action) {
      const near = nearestName(name, Object.keys(actions))
      throw usageError(
        `millrace tools has no "${name}"; ${near ? `did you mean ${near}?` : 'there is list, call, doctor and serve'}`,
      )
    }
    refuseWhatIsForOthers(name, action, invocation)
    // The output of an environment must not mix with JSON.
    const { json } = invocation.flags
    using _foreign = json ? new ForeignOutput([io.stdout], (line) => void io.stderr.line(line)) : undefined
    const stopping = new AbortController()
    const stop = (): void => stopping.abort(usageError('interrupted'))
    using interrupts = new Interrupts(io.events, { drain: stop, stop: () => {} })
    try {
      return await action.run(invocation, { io, signal: stopping.signal })
    } catch (error) {
      if (stopping.signal.aborted && interrupts.exitCode !== undefined) return interrupts.exitCode
      throw error
    }
  },
})

async function sourceOf({ arguments: [, config = ''], prefixed }: Invocation<typeof toolsFlags>, io: CommandIo) {
  const { readToolSource } = await import('../tools/tool-source.ts')
  return await readToolSource(config, prefixed['env'] ?? {}, io)
}

function refuseWhatIsForOthers(
  name: string,
  action: Action,
  { arguments: given, flags }: Invocation<typeof toolsFlags>,
): void {
  const known = Object.keys(toolsFlags) as readonly (keyof Flags)[]
  const stray = known.find((flag) => flags[flag] !== undefined && !action.flags.includes(flag))
  if (stray !== undefined) {
    throw usageError(`--${stray} is for millrace tools ${toolsFlags[stray].group}, not for ${name}; leave it out`)
  }
  const extra = given[2 + action.extra]
  if (extra !== undefined) throw usageError(`do not know what to do with "${extra}"; see millrace tools --help`)
}
