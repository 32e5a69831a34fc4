import { groupMemoryBytes, startRefusal } from '../../../process/index.ts'
import { existsSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { type ErrorCode, MillraceError } from '../../../errors/index.ts'
import { networkCause, proxyFor } from '../../../http/index.ts'
import { causesOf, Semaphore } from '../../../kit/index.ts'
import { isJsonObject } from '../../../schema/index.ts'
import {
  type HttpServerConfig,
  McpSession,
  mcpTools,
  redactionOf,
  refuseTaken,
  refuseUnlisted,
  type ServerConfig,
  type ServerTool,
  sharingOf,
  type StdioServerConfig,
  type ToolCatalogue,
} from '../../../tools/index.ts'
import { formatBytes, formatQuantity } from '../../terminal/format.ts'
import {
  isRequired,
  serverConfig,
  type ToolCommandContext,
  type ToolSource,
  type Transport,
  transportOf,
} from './tool-source.ts'

export interface Step {
  readonly step: 'config' | 'open' | 'names'
  readonly ok: boolean
  readonly ms: number
  readonly shown: string
  readonly code?: ErrorCode
}

export interface Diagnosis {
  readonly server: string
  readonly isRequired: boolean
  readonly transport: Transport
  readonly steps: readonly Step[]
  readonly exitCode?: number
  readonly stderr?: string
  readonly tools?: ReturnType<typeof countTools>
  readonly memoryBytes?: number
  readonly sharing?: string
  /** What to do about problems, or how to improve the configuration. */
  readonly hints: readonly string[]
}

export interface Opened {
  readonly catalogues: ToolCatalogue[]
  readonly configs: Record<string, ServerConfig>
}

const maxNamesShown = 3
const defaultPoolSize = 32

export function failedStep({ steps }: Diagnosis): Step | undefined {
  return steps.find(({ ok }) => !ok)
}

/** Whether the configuration is wrong: then no evaluation begins, whether or not the server is required. */
export function isMisconfigured(diagnosis: Diagnosis): boolean {
  return failedStep(diagnosis)?.code === 'config_invalid'
}

export async function diagnose(
  source: ToolSource,
  name: string,
  opened: Opened,
  { io, signal }: ToolCommandContext,
): Promise<Diagnosis> {
  const entry = source.servers[name]
  const steps: Step[] = []
  const facts = { server: name, isRequired: isRequired(entry), transport: transportOf(entry), steps }
  let config: ServerConfig
  try {
    const read = () => serverConfig(source, name, io.env)
    config = await take(steps, 'config', read, () => entryText(entry))
  } catch (error) {
    return { ...facts, hints: configHints(error) }
  }
  const redaction = redactionOf(config)
  const hints = packageRunnerHints(config)
  await using session = new McpSession({ name, config, starts: new Semaphore(1), onEvent: () => {} })
  try {
    const catalogue = await take(steps, 'open', () => session.open(signal), listText)
    const { pid } = session
    const memoryBytes = pid === undefined ? undefined : groupMemoryBytes(pid)
    const tools = countTools(catalogue.tools)
    await checkNames(steps, catalogue, { config, opened, own: source.environment?.environment.tools ?? {} })
    const sharing = sharingAdvice(name, config, tools, memoryBytes)
    return { ...facts, tools, ...(memoryBytes !== undefined && { memoryBytes }), sharing, hints }
  } catch (thrown) {
    const error = MillraceError.from(thrown, 'tool_infra')
    const { exitCode, stderr } = error.data
    hints.push(...failureHints(error, config, io.cwd).map((hint) => redaction.text(hint)))
    const end = { ...(typeof exitCode === 'number' && { exitCode }), ...(typeof stderr === 'string' && { stderr }) }
    return { ...facts, hints, ...end }
  }
}

/** Records how a step went. An error is thrown again: no later step can be tried. */
async function take<T>(
  steps: Step[],
  step: Step['step'],
  work: () => T | Promise<T>,
  shown: (result: T) => string,
): Promise<T> {
  const startedAt = performance.now()
  try {
    const result = await work()
    steps.push({ step, ok: true, ms: performance.now() - startedAt, shown: shown(result) })
    return result
  } catch (error) {
    const { rawMessage, code } = MillraceError.from(error, 'tool_infra')
    steps.push({ step, ok: false, ms: performance.now() - startedAt, shown: rawMessage, code })
    throw error
  }
}

/** Checks the names of the tools that rollouts would be offered, as a rollout does. An error is the result of the step. */
async function checkNames(
  steps: Step[],
  catalogue: ToolCatalogue,
  { config, opened, own }: { config: ServerConfig; opened: Opened; own: Readonly<Record<string, unknown>> },
): Promise<void> {
  const { server } = catalogue
  const names = (): readonly string[] => {
    refuseUnlisted(catalogue)
    const tools = mcpTools([...opened.catalogues, catalogue], { ...opened.configs, [server]: config })
    refuseTaken(tools, own)
    opened.catalogues.push(catalogue)
    opened.configs[server] = config
    return Object.entries(tools).flatMap(([name, { origin }]) => (origin?.server === server ? [name] : []))
  }
  await take(steps, 'names', names, namesText).catch(() => {})
}

function namesText(names: readonly string[]): string {
  const more = names.length - maxNamesShown
  const shown = names.slice(0, maxNamesShown).join(', ')
  if (names.length === 0) return 'models see none of its tools'
  return `models see ${shown}${more > 0 ? ` and ${formatQuantity(more, 'more tool')}` : ''}`
}

function listText({ tools }: ToolCatalogue): string {
  const { count, readOnly, idempotent } = countTools(tools)
  if (count === 0) return 'it offers no tools'
  return `${formatQuantity(count, 'tool')}: ${readOnly} declared read-only and ${idempotent} declared idempotent`
}

function countTools(tools: readonly ServerTool[]) {
  return {
    count: tools.length,
    readOnly: tools.filter(({ isReadOnly }) => isReadOnly).length,
    idempotent: tools.filter(({ isIdempotent }) => isIdempotent).length,
  }
}

/** The entry as it is written, without variables filled in: these may be secret. */
function entryText(entry: unknown): string {
  if (!isJsonObject(entry)) return ''
  const { command, args = [], url } = entry
  if (command === undefined) return typeof url === 'string' ? url : ''
  return [command, ...(Array.isArray(args) ? args : [])].join(' ')
}

function sharingAdvice(
  server: string,
  config: ServerConfig,
  tools: ReturnType<typeof countTools>,
  memoryBytes: number | undefined,
): string {
  const sharing = sharingOf(server, config)
  const memory = memoryBytes === undefined ? 'its memory' : formatBytes(memoryBytes)
  if (sharing === 'session') return 'session: each rollout has a session of its own on the one server'
  if (sharing === 'shared') {
    return 'command' in config
      ? `shared: one process for all rollouts, ${memory} in total`
      : 'shared: one session for all rollouts'
  }
  const max = config.pool?.max ?? defaultPoolSize
  const whole = memoryBytes === undefined ? '' : `, ${formatBytes(memoryBytes * max)} with ${max} at once`
  const isHarmless = tools.count > 0 && tools.readOnly === tools.count
  const advice = isHarmless
    ? 'all its tools are declared read-only, so "sharing": "shared" is likely right: one process for all'
    : 'if it keeps no state between calls, "sharing": "shared" needs only one process for all'
  return `pooled: a process for each rollout, ${memory} each${whole}; ${advice}`
}

/** Programs that look for a package, and perhaps download it, before they start it. */
const packageRunners: ReadonlySet<string> = new Set(['npx', 'bunx', 'pnpx', 'uvx', 'pipx'])

function packageRunnerHints(config: ServerConfig): string[] {
  const command = 'command' in config ? basename(config.command) : ''
  if (!packageRunners.has(command)) return []
  const instead = 'install it, and start its own file, as in "command": "node", "args": ["node_modules/…"]'
  return [`${command} looks for the package on every start, and may download it: ${instead}`]
}

function configHints(error: unknown): string[] {
  const variable = error instanceof MillraceError ? error.data['variable'] : undefined
  if (typeof variable !== 'string') return ['docs/tools.md lists the fields of a server']
  return [`${variable} is empty or not set: export it, put it into .env, or write \${${variable}:-a default}`]
}

/** What to do about a server that could not be opened, where its error does not say so itself. */
function failureHints(error: MillraceError, config: ServerConfig, cwd: string): string[] {
  if ('url' in config) return urlHints(error, config)
  const { exitCode, signal, stderr } = error.data
  const stderrText = typeof stderr === 'string' ? stderr : ''
  const code = typeof exitCode === 'number' ? exitCode : null
  if (startRefusal({ code, signal: null }, stderrText)) return [commandHint(config, cwd)]
  return exitHints(code !== null || signal !== undefined, stderrText)
}

function commandHint({ command, env, cwd: folder }: StdioServerConfig, cwd: string): string {
  const [first = '', ...rest] = command.trim().split(/\s+/)
  // A path may contain a space; then the part before the space is no program.
  if (rest.length > 0 && (!first.includes('/') || existsSync(resolve(folder ?? cwd, first)))) {
    return `"command" is one program: write "command": "${first}", "args": ${JSON.stringify(rest)}`
  }
  if (command.includes('/')) {
    return `the path ${command} starts from ${folder ?? cwd}: correct the path, or make the file executable with chmod +x`
  }
  return `install ${command}, or give its whole path; PATH is ${env?.['PATH'] ?? process.env['PATH'] ?? ''}`
}

function exitHints(hasExited: boolean, stderr: string): string[] {
  const missing = /(?:Cannot find (?:module|package)|ModuleNotFoundError|MODULE_NOT_FOUND)/.exec(stderr)
  if (missing) return ['a package of the server is not installed: install it, and start the server where it is found']
  const variable = /\b([A-Z][A-Z0-9_]*_(?:KEY|TOKEN|SECRET|URL|ID|PASSWORD))\b/.exec(stderr)?.[1]
  if (hasExited && variable !== undefined) {
    const example = `"${variable}": "\${${variable}}"`
    return [`it may lack ${variable}: a server gets only the variables in its "env", as in ${example}`]
  }
  if (hasExited) return ['run its command by hand to see its output; it must keep running and wait for input']
  return ['it runs but does not answer: does it need an argument, as in "stdio", to speak MCP on its standard input?']
}

function urlHints(error: MillraceError, { url, type, headers = {} }: HttpServerConfig): string[] {
  const { status } = error.data
  const target = new URL(url)
  const { origin, hostname } = target
  if (status === 401 || status === 403) {
    const has = Object.keys(headers).some((name) => name.toLowerCase() === 'authorization')
    if (has) return ['it rejects the key in "headers": is the key right, and still valid?']
    return ['it requires authentication: give it "headers": { "Authorization": "Bearer ${…}" }']
  }
  if (type === 'sse') return ['if the server speaks Streamable HTTP, as most now do, its "type" is "http"']
  if (status === 404 || status === 405) return ['if it speaks the older transport, set "type": "sse"']
  const codes = new Set(Array.from(causesOf(error), (cause) => networkCause(cause).code))
  const isUnknownHost = codes.has('ENOTFOUND') || codes.has('EAI_AGAIN')
  if (!isUnknownHost && !codes.has('ECONNREFUSED') && !codes.has('UND_ERR_CONNECT_TIMEOUT')) return []
  if (proxyFor(target, process.env) !== undefined) {
    const way = `HTTPS_PROXY or HTTP_PROXY sets a proxy for ${hostname}`
    return [`${way}: is the proxy right, and does it run? NO_PROXY=${hostname} bypasses it`]
  }
  if (!isUnknownHost) return [`no server answers at ${origin}: is the server running, and is the port right?`]
  return [`the host name ${hostname} cannot be resolved: is it right, and does DNS work on this machine?`]
}
