import { usageError } from './command-line/flag-value.ts'
import { nearestName, packageVersion } from '../kit/index.ts'
import { commandHelp } from './command-line/command-help.ts'
import type { Command } from './command-line/command.ts'
import { type ExitCode, exitCodes, reportError } from './terminal/exit-codes.ts'
import { type CommandIo, loadEnvFile, openIo, type ProcessParts } from './terminal/io.ts'
import { parseCommandLine } from './command-line/parse-command-line.ts'

/** The commands. Each is loaded only when it is used: `millrace --help` must not load a database and an HTTP client. */
const commands: Readonly<Record<string, [summary: string, load: () => Promise<{ readonly command: Command }>]>> = {
  eval: ['Run an environment against a model and score it', () => import('./commands/eval/eval-command.ts')],
  serve: ['Serve rollouts of an environment over HTTP', () => import('./commands/serve/serve-command.ts')],
  gateway: [
    'Serve models to agents in any language, and record the conversations',
    () => import('./commands/gateway/gateway-command.ts'),
  ],
  tools: [
    'Look at tool servers (MCP), call a tool, or serve an environment’s own',
    () => import('./commands/tools/tools-command.ts'),
  ],
  show: ['Show the results of a run, or one transcript', () => import('./commands/show/show-command.ts')],
  replay: [
    'Run stored rollouts again against their recording, and compare',
    () => import('./commands/replay/replay-command.ts'),
  ],
  rescore: ['Run new rewards over the rollouts of a run', () => import('./commands/rescore/rescore-command.ts')],
  fork: [
    'Continue from a turn of a stored rollout, with another model or prompt',
    () => import('./commands/fork/fork-command.ts'),
  ],
  list: ['List runs', () => import('./commands/list/list-command.ts')],
  export: ['Write the rollouts of a run as JSON lines', () => import('./commands/export/export-command.ts')],
  prune: ['Delete old runs', () => import('./commands/prune/prune-command.ts')],
  doctor: [
    'Show the resources of this machine, or what slowed down a run',
    () => import('./commands/doctor/doctor-command.ts'),
  ],
  sim: ['Serve the simulated model over HTTP', () => import('./commands/sim/sim-command.ts')],
  init: ['Write a small environment that runs at once', () => import('./commands/init/init-command.ts')],
}

/** The command line: the arguments after `millrace` in, the exit code out. Never throws. */
export async function main(args: readonly string[], parts: ProcessParts = {}): Promise<ExitCode> {
  using io = openIo(parts)
  try {
    const exitCode = await dispatch(args, io)
    await io.stdout.flush()
    return exitCode
  } catch (error) {
    return reportError(error, io.stderr, { debug: args.includes('--debug') })
  }
}

async function dispatch(args: readonly string[], io: CommandIo): Promise<ExitCode> {
  const [first = 'help', ...rest] = args
  switch (first) {
    case '--version':
    case '-v':
      void io.stdout.line(packageVersion())
      return exitCodes.ok
    case 'help':
    case '--help':
    case '-h': {
      const name = rest.find((arg) => !arg.startsWith('-'))
      return name === undefined ? rootHelp(io) : showHelp(await loadCommand(name), io)
    }
    default:
      return runCommand(await loadCommand(first), rest, io)
  }
}

async function runCommand(command: Command, args: readonly string[], io: CommandIo): Promise<ExitCode> {
  const invocation = parseCommandLine(command, args)
  if ('help' in invocation.flags) return showHelp(command, io)
  for (const notice of [...invocation.notices, loadEnvFile(io.cwd, io.env)]) {
    if (notice !== undefined) void io.stderr.line(`${io.stderr.style.warn('notice:')} ${notice}`)
  }
  return command.run(invocation, io)
}

async function loadCommand(name: string): Promise<Command> {
  const [, load] = (Object.hasOwn(commands, name) && commands[name]) || []
  if (load) return (await load()).command
  const near = nearestName(name, [...Object.keys(commands), 'help'])
  const what = name.startsWith('-') ? 'flag' : 'command'
  const hint = near ? `did you mean millrace ${near}?` : 'millrace --help lists all commands'
  throw usageError(`unknown ${what} ${name}; ${hint}`)
}

function showHelp(command: Command, io: CommandIo): ExitCode {
  void io.stdout.write(commandHelp(command, { columns: io.stdout.columns, style: io.stdout.style }))
  return exitCodes.ok
}

function rootHelp(io: CommandIo): ExitCode {
  const { style } = io.stdout
  const names = Object.entries(commands).map(([name, [summary]]) => `  ${style.accent(name.padEnd(10))}${summary}`)
  void io.stdout.write(
    `${[
      `${style.bold('millrace')} ${packageVersion()}: runs agent rollouts, fast and without losing any.`,
      '',
      `${style.bold('Usage:')} millrace <command> [flags]`,
      '',
      style.bold('Commands'),
      ...names,
      `  ${style.accent('help'.padEnd(10))}Show the help of a command: millrace help eval`,
      '',
      style.bold('First steps'),
      `  ${style.dim('# 300 rollouts against a simulated model: no key, no GPU')}`,
      `  ${style.accent(`${io.program} eval arithmetic -m sim -n 4 --limit 75`)}`,
      `  ${style.dim('# an environment of your own')}`,
      `  ${style.accent(`${io.program} init my-environment`)}`,
      '',
      style.bold('Environment variables'),
      '  OPENAI_API_KEY, OPENAI_BASE_URL         the endpoint that serves models which are not simulated',
      '  ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL   the same for models whose name begins with claude-',
      '  MILLRACE_RUNS                           the folder that holds runs [default: runs]',
      '  NO_COLOR, FORCE_COLOR                   no colours; colours even without a terminal',
      '  A file .env in the working folder is read first; it never overrides what is set.',
      '',
      `Every command explains itself, its flags and its exit codes: millrace <command> --help`,
    ].join('\n')}\n`,
  )
  return exitCodes.ok
}
