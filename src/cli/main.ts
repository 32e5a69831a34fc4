import { MillraceError } from '../errors/index.ts'
import { nearestName, packageVersion } from '../kit/index.ts'
import { commandHelp } from './command-line/command-help.ts'
import type { Command } from './command-line/command.ts'
import { exitCodes, type ExitCode } from './process/exit-codes.ts'
import { openIo, type CommandIo, type ProcessParts } from './process/io.ts'
import { loadEnvFile } from './process/load-env-file.ts'
import { parseCommandLine } from './command-line/parse-command-line.ts'
import { reportError } from './process/report-error.ts'

/** The commands. Each is loaded only when it is used: `millrace --help` must not load a database and an HTTP client. */
const commands: Readonly<Record<string, { readonly summary: string; load(): Promise<Command> }>> = {
  eval: {
    summary: 'Run an environment against a model and score it',
    load: async () => (await import('./commands/eval-command.ts')).evalCommand,
  },
  serve: {
    summary: 'Serve rollouts of an environment over HTTP',
    load: async () => (await import('./commands/serve-command.ts')).serveCommand,
  },
  gateway: {
    summary: 'Serve models to agents in any language, and record what they say',
    load: async () => (await import('./commands/gateway-command.ts')).gatewayCommand,
  },
  tools: {
    summary: 'Look at tool servers (MCP), call a tool, or serve an environment’s own',
    load: async () => (await import('./commands/tools-command.ts')).toolsCommand,
  },
  show: {
    summary: 'Show the results of a run, or one transcript',
    load: async () => (await import('./commands/show-command.ts')).showCommand,
  },
  replay: {
    summary: 'Run stored rollouts again against their recording, and compare',
    load: async () => (await import('./commands/replay-command.ts')).replayCommand,
  },
  rescore: {
    summary: 'Run new rewards over the rollouts of a run',
    load: async () => (await import('./commands/rescore-command.ts')).rescoreCommand,
  },
  fork: {
    summary: 'Go on from a turn of a stored rollout, with another model or prompt',
    load: async () => (await import('./commands/fork-command.ts')).forkCommand,
  },
  list: {
    summary: 'List runs',
    load: async () => (await import('./commands/list-command.ts')).listCommand,
  },
  export: {
    summary: 'Write the rollouts of a run as JSON lines',
    load: async () => (await import('./commands/export-command.ts')).exportCommand,
  },
  prune: {
    summary: 'Delete old runs',
    load: async () => (await import('./commands/prune-command.ts')).pruneCommand,
  },
  doctor: {
    summary: 'Show what this machine offers, or what held up a run',
    load: async () => (await import('./commands/doctor-command.ts')).doctorCommand,
  },
  sim: {
    summary: 'Serve the simulated model over HTTP',
    load: async () => (await import('./commands/sim-command.ts')).simCommand,
  },
  init: {
    summary: 'Write a small environment that runs at once',
    load: async () => (await import('./commands/init-command.ts')).initCommand,
  },
}

/** The command line: the words after `millrace` in, the exit code out. Never throws. */
export async function main(words: readonly string[], parts: ProcessParts = {}): Promise<ExitCode> {
  using io = openIo(parts)
  try {
    const exitCode = await dispatch(words, io)
    await io.stdout.flush()
    return exitCode
  } catch (error) {
    return reportError(error, io.stderr, { debug: words.includes('--debug') })
  }
}

async function dispatch(words: readonly string[], io: CommandIo): Promise<ExitCode> {
  const [first = 'help', ...rest] = words
  switch (first) {
    case '--version':
    case '-v':
      void io.stdout.line(packageVersion())
      return exitCodes.ok
    case 'help':
    case '--help':
    case '-h': {
      const name = rest.find((word) => !word.startsWith('-'))
      return name === undefined ? rootHelp(io) : showHelp(await loadCommand(name), io)
    }
    default:
      return runCommand(await loadCommand(first), rest, io)
  }
}

async function runCommand(command: Command, words: readonly string[], io: CommandIo): Promise<ExitCode> {
  const invocation = parseCommandLine(command, words)
  if ('help' in invocation.flags) return showHelp(command, io)
  for (const notice of [...invocation.notices, loadEnvFile(io.cwd, io.env)]) {
    if (notice !== undefined) void io.stderr.line(`${io.stderr.style.warn('notice:')} ${notice}`)
  }
  return command.run(invocation, io)
}

function loadCommand(name: string): Promise<Command> {
  const entry = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (entry) return entry.load()
  const near = nearestName(name, [...Object.keys(commands), 'help'])
  const what = name.startsWith('-') ? 'flag' : 'command'
  const hint = near ? `did you mean millrace ${near}?` : 'millrace --help lists all commands'
  throw new MillraceError('usage', `unknown ${what} ${name}; ${hint}`)
}

function showHelp(command: Command, io: CommandIo): ExitCode {
  void io.stdout.write(commandHelp(command, { columns: io.stdout.columns, style: io.stdout.style }))
  return exitCodes.ok
}

function rootHelp(io: CommandIo): ExitCode {
  const { style } = io.stdout
  const names = Object.entries(commands).map(([name, { summary }]) => `  ${style.accent(name.padEnd(10))}${summary}`)
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
      '  NO_COLOR, FORCE_COLOR                   no colours; colours also where there is no terminal',
      '  A file .env in the working folder is read first; it never overrides what is set.',
      '',
      `Every command explains itself, its flags and its exit codes: millrace <command> --help`,
    ].join('\n')}\n`,
  )
  return exitCodes.ok
}
