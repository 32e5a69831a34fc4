import { basename } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { ServerProcess, type ServerOptions, type ServerTool, type StdioServerConfig } from '../../tools/index.ts'
import { printableLine } from '../format/printable.ts'
import type { Examination, Steps } from './_examination.ts'
import { findCommand } from './_find-command.ts'
import { groupMemoryBytes } from './_group-memory.ts'
import { handshake } from './_handshake.ts'
import { ProcessTransport } from './_process-transport.ts'

interface Findings extends Pick<Examination, 'exitCode' | 'stderr' | 'memoryBytes' | 'hints'> {
  readonly listed?: readonly ServerTool[]
}

export interface ProcessToExamine {
  readonly server: string
  readonly config: StdioServerConfig & ServerOptions
  readonly steps: Steps
  readonly cwd: string
  readonly signal: AbortSignal
}

/** Programs that look for a package, and perhaps download it, before they start it. */
const fetchers: ReadonlySet<string> = new Set(['npx', 'bunx', 'pnpx', 'uvx', 'pipx'])

/** Examines a server that is a command: whether it exists, starts and answers, and what it takes. */
export async function examineProcess(examined: ProcessToExamine): Promise<Findings> {
  const { server, config, steps, signal } = examined
  const hints = fetchers.has(basename(config.command)) ? [fetcherHint(config.command)] : []
  try {
    await steps.take(
      'command',
      () => locate(examined),
      (place) => place,
    )
  } catch {
    return { hints: [...hints, await commandHint(examined)] }
  }
  let started: ServerProcess
  try {
    started = await steps.take(
      'start',
      () => ServerProcess.start({ server, config }),
      ({ pid }) => `process ${pid}`,
    )
  } catch {
    return { hints }
  }
  await using process = started
  const transport = new ProcessTransport(process)
  try {
    const explain = (error: unknown): unknown => process.failure ?? error
    const listed = await handshake(steps, transport, { server, config, signal, explain })
    const memoryBytes = await groupMemoryBytes(process.pid)
    hints.push(...strayHints(transport))
    return { listed, hints, ...(memoryBytes !== undefined && { memoryBytes }), ...stderrOf(process) }
  } catch {
    hints.push(...strayHints(transport), ...exitHints(process))
    const { code } = process.exit ?? { code: null }
    return { hints, ...(code !== null && { exitCode: code }), ...stderrOf(process) }
  }
}

function placeOf(command: string, { config, cwd }: ProcessToExamine): Promise<string | undefined> {
  return findCommand(command, { path: pathOf(config), cwd: config.cwd ?? cwd })
}

async function locate(examined: ProcessToExamine): Promise<string> {
  const { config } = examined
  const place = await placeOf(config.command, examined)
  if (place !== undefined) return place
  throw new MillraceError('tool_infra', `there is no "${config.command}" that can be run`)
}

function pathOf({ env }: StdioServerConfig): string {
  return env?.['PATH'] ?? process.env['PATH'] ?? ''
}

async function commandHint(examined: ProcessToExamine): Promise<string> {
  const { config, cwd } = examined
  const { command } = config
  const [first = '', ...rest] = command.trim().split(/\s+/)
  // A path may contain a space; then the part before the space is no program.
  if (rest.length > 0 && (!first.includes('/') || (await placeOf(first, examined)) !== undefined)) {
    return `"command" is one program: write "command": "${first}", "args": ${JSON.stringify(rest)}`
  }
  if (command.includes('/')) {
    return `${command} is looked for from ${config.cwd ?? cwd}: correct the path, or make the file executable with chmod +x`
  }
  return `install ${command}, or give its whole path; PATH is ${pathOf(config)}`
}

function fetcherHint(command: string): string {
  return (
    `${basename(command)} looks for the package on every start, and may download it: install it, and start its own file, ` +
    'as in "command": "node", "args": ["node_modules/…"]'
  )
}

function strayHints({ strayLines: [line, ...others] }: ProcessTransport): string[] {
  if (line === undefined) return []
  const more = others.length > 0 ? ` and ${others.length} more like it` : ''
  return [
    `it writes to standard output what is no message (${printableLine(line).slice(0, 80)}${more}): standard output is the ` +
      'protocol’s, anything else belongs on standard error. Such lines are skipped',
  ]
}

function exitHints({ exit, stderr }: ServerProcess): string[] {
  const missing = /(?:Cannot find (?:module|package)|ModuleNotFoundError|MODULE_NOT_FOUND)/.exec(stderr)
  if (missing) return ['a package of the server is not installed: install it, and start the server where it is found']
  const variable = /\b([A-Z][A-Z0-9_]*_(?:KEY|TOKEN|SECRET|URL|ID|PASSWORD))\b/.exec(stderr)?.[1]
  if (exit && variable !== undefined) {
    return [
      `it may lack ${variable}: a server gets only the variables in its "env", as in "${variable}": "\${${variable}}"`,
    ]
  }
  if (exit) return ['run its command by hand to see what it says; it must keep running and wait for its input']
  return ['it runs but does not answer: does it need an argument, as in "stdio", to speak MCP on its standard input?']
}

function stderrOf({ stderr }: ServerProcess): { stderr?: string } {
  return stderr.trim() === '' ? {} : { stderr }
}
