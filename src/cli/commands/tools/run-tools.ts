import { nearestName } from '../../../kit/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import type { FlagValues } from '../../command-line/flags.ts'
import { usageError } from '../../command-line/flag-value.ts'
import type { ExitCode } from '../../terminal/exit-codes.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { UserCodeOutput } from '../../terminal/output.ts'
import { Interrupts } from '../../terminal/signals.ts'
import type { ToolCommandContext } from './tool-source.ts'
import { toolsFlags } from './tools-command.ts'

type Flags = FlagValues<typeof toolsFlags>

interface Action {
  readonly flags: readonly (keyof Flags)[]
  readonly extra: number
  run(invocation: Invocation<typeof toolsFlags>, around: ToolCommandContext): Promise<ExitCode>
}

/** The actions. Each is loaded only when it is used: listing tools must not load an HTTP server. */
const actions: Readonly<Record<string, Action>> = {
  list: {
    flags: ['server', 'json'],
    extra: 0,
    run: async (invocation, around) => {
      const { listTools } = await import('./list-tools.ts')
      return await listTools(await sourceOf(invocation, around.io), invocation.flags, around)
    },
  },
  call: {
    flags: ['arg', 'task', 'json'],
    extra: 2,
    run: async (invocation, around) => {
      const [, , tool, json] = invocation.arguments
      if (tool === undefined) throw usageError('millrace tools call needs a tool: millrace tools call <config> <tool>')
      const { arg: pairs = [], task, json: asJson = false } = invocation.flags
      const { callTool } = await import('./call-tool.ts')
      return await callTool(await sourceOf(invocation, around.io), { tool, json, pairs, task, asJson }, around)
    },
  },
  doctor: {
    flags: ['server', 'json'],
    extra: 0,
    run: async (invocation, around) => {
      const { diagnoseServers } = await import('./diagnose-servers.ts')
      return await diagnoseServers(await sourceOf(invocation, around.io), invocation.flags, around)
    },
  },
  serve: {
    flags: ['task', 'http'],
    extra: 0,
    run: async ({ arguments: [, name = ''], flags: { task, http }, prefixed }, around) => {
      const { environmentName, isServerFile } = await import('./tool-source.ts')
      if (isServerFile(name)) {
        throw usageError(
          `millrace tools serve serves the tools of an environment; ${name} is a file of servers, which any MCP client can open directly`,
        )
      }
      const { loadEnvironment } = await import('../../../env/index.ts')
      const load = () => loadEnvironment(environmentName(name), prefixed['env'] ?? {}, { cwd: around.io.cwd })
      const { serveEnvironmentTools } = await import('./serve-tools.ts')
      return await serveEnvironmentTools({ load, task, http }, around)
    },
  },
}

export async function runTools(invocation: Invocation<typeof toolsFlags>, io: CommandIo): Promise<ExitCode> {
  const [name = ''] = invocation.arguments
  const action = Object.hasOwn(actions, name) ? actions[name] : undefined
  if (!action) {
    const near = nearestName(name, Object.keys(actions))
    throw usageError(
      `millrace tools has no "${name}"; ${near ? `did you mean ${near}?` : 'the actions are list, call, doctor and serve'}`,
    )
  }
  refuseWhatIsForOthers(name, action, invocation)
  // The output of an environment must not mix with JSON.
  const { json } = invocation.flags
  using _foreign = json ? new UserCodeOutput([io.stdout], (line) => void io.stderr.line(line)) : undefined
  const stopping = new AbortController()
  const stop = (): void => stopping.abort(usageError('interrupted'))
  using interrupts = new Interrupts(io.events, { drain: stop, stop: () => {} })
  try {
    return await action.run(invocation, { io, signal: stopping.signal })
  } catch (error) {
    if (stopping.signal.aborted && interrupts.exitCode !== undefined) return interrupts.exitCode
    throw error
  }
}

async function sourceOf({ arguments: [, config = ''], prefixed }: Invocation<typeof toolsFlags>, io: CommandIo) {
  const { readToolSource } = await import('./tool-source.ts')
  return await readToolSource(config, prefixed['env'] ?? {}, io)
}

function refuseWhatIsForOthers(
  name: string,
  action: Action,
  { arguments: given, flags }: Invocation<typeof toolsFlags>,
): void {
  const known = Object.keys(toolsFlags) as readonly (keyof Flags)[]
  const unusedFlag = known.find((flag) => flags[flag] !== undefined && !action.flags.includes(flag))
  if (unusedFlag !== undefined) {
    throw usageError(
      `--${unusedFlag} is for millrace tools ${toolsFlags[unusedFlag].group}, not for ${name}; leave it out`,
    )
  }
  const extra = given[2 + action.extra]
  if (extra !== undefined) throw usageError(`unexpected argument "${extra}"; see millrace tools --help`)
}
