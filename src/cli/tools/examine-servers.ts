import { MillraceError } from '../../errors/index.ts'
import { AbortScope, type Redaction } from '../../kit/index.ts'
import { isJsonObject } from '../../schema/index.ts'
import { buildCatalogue, redactionOf, type ServerConfig, type ServerTool } from '../../tools/index.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { formatQuantity } from '../format/count.ts'
import type { CommandIo } from '../process/io.ts'
import { countTools, isHealthy, isMisconfigured, Steps, type Examination, type ToolCounts } from './_examination.ts'
import { examinationText } from './_examination-text.ts'
import { examineProcess } from './_examine-process.ts'
import { examineUrl } from './_examine-url.ts'
import { OfferedNames } from './_offered-names.ts'
import { sharingAdvice } from './_sharing-advice.ts'
import { isRequired, onlyServer, serverConfig, transportOf, type ToolSource } from './tool-source.ts'

interface Surroundings {
  readonly io: CommandIo
  readonly signal: AbortSignal
}

/** More names would not tell anything new. */
const maxNamesShown = 3

/** The default of `ServerOptions.startTimeoutMs`. */
const defaultStartMs = 30_000

/**
 * Carries out `millrace tools doctor`: examines one server after the other, so that none is slow because of another. Each
 * result is shown as soon as it is known.
 */
export async function examineServers(
  source: ToolSource,
  { server, asJson }: { readonly server: string | undefined; readonly asJson: boolean },
  around: Surroundings,
): Promise<ExitCode> {
  const { stdout } = around.io
  const examinations: Examination[] = []
  const chosen = onlyServer(source, server)
  const names = new OfferedNames(source.environment?.environment.tools)
  for (const name of Object.keys(chosen.servers)) {
    const examination = await examine(source, name, { ...around, names })
    around.signal.throwIfAborted()
    examinations.push(examination)
    const width = stdout.isTTY ? stdout.columns : Number.POSITIVE_INFINITY
    if (!asJson) for (const line of examinationText(examination, { width, style: stdout.style })) void stdout.line(line)
  }
  if (asJson) {
    const healthy = examinations.filter(isHealthy).map((each) => each.server)
    void stdout.line(JSON.stringify({ healthy, servers: examinations }))
  } else if (examinations.length === 0) {
    void stdout.line(`${source.environment?.name ?? source.label} has no tool servers, so there is nothing to examine`)
  }
  if (examinations.some(isMisconfigured)) return exitCodes.usage
  return examinations.some((each) => each.isRequired && !isHealthy(each)) ? exitCodes.failed : exitCodes.ok
}

async function examine(
  source: ToolSource,
  name: string,
  { io, signal, names }: Surroundings & { readonly names: OfferedNames },
): Promise<Examination> {
  const entry = source.servers[name]
  const facts = { server: name, isRequired: isRequired(entry), transport: transportOf(entry) }
  const steps = new Steps()
  let config: ServerConfig
  try {
    config = await steps.take(
      'config',
      () => serverConfig(source, name, io.env),
      () => entryText(entry),
    )
  } catch (error) {
    return { ...facts, steps: steps.taken, hints: configHints(error) }
  }
  const timeoutMs = config.startTimeoutMs ?? defaultStartMs
  using scope = new AbortScope(
    signal,
    timeoutMs,
    () => new MillraceError('tool_infra', `no answer within ${timeoutMs} ms`),
  )
  const { listed, ...findings } =
    'command' in config
      ? await examineProcess({ server: name, config, steps, cwd: io.cwd, signal: scope.signal })
      : await examineUrl({ server: name, config, steps, signal: scope.signal })
  const tools = listed && (await nameTools({ server: name, config, steps, names, listed }))
  const examination = {
    ...facts,
    steps: steps.taken,
    ...findings,
    ...(tools && { tools, sharing: sharingAdvice(name, config, { ...findings, tools }) }),
  }
  return withoutSecrets(examination, redactionOf(config))
}

interface ToolsToName {
  readonly server: string
  readonly config: ServerConfig
  readonly steps: Steps
  readonly names: OfferedNames
  readonly listed: readonly ServerTool[]
}

/** Checks the names of the tools that rollouts would be offered against the configuration, as a rollout does. */
async function nameTools({ server, config, steps, names, listed }: ToolsToName): Promise<ToolCounts> {
  const catalogue = buildCatalogue(server, listed, config)
  try {
    await steps.take('names', () => names.add(catalogue, config), namesText)
  } catch {
    // The step has recorded the error.
  }
  return countTools(catalogue.tools)
}

function namesText(names: readonly string[]): string {
  const more = names.length - maxNamesShown
  const shown = names.slice(0, maxNamesShown).join(', ')
  if (names.length === 0) return 'models see no tool of it'
  return `models see ${shown}${more > 0 ? ` and ${formatQuantity(more, 'more tool')}` : ''}`
}

/** The entry as it is written, without variables filled in: these may be secret. */
function entryText(entry: unknown): string {
  if (!isJsonObject(entry)) return ''
  const { command, args = [], url } = entry
  if (command === undefined) return typeof url === 'string' ? url : ''
  return [command, ...(Array.isArray(args) ? args : [])].join(' ')
}

/** Redacts secrets: a server's own output may repeat what it was given. */
function withoutSecrets(examination: Examination, redaction: Redaction): Examination {
  const { steps, hints, stderr } = examination
  return {
    ...examination,
    steps: steps.map((step) => Object.assign({}, step, { shown: redaction.text(step.shown) })),
    hints: hints.map((hint) => redaction.text(hint)),
    ...(stderr !== undefined && { stderr: redaction.text(stderr) }),
  }
}

function configHints(error: unknown): string[] {
  const variable = error instanceof MillraceError ? error.data['variable'] : undefined
  if (typeof variable !== 'string') return ['docs/tools.md lists what a server may be given']
  return [`${variable} is empty or not set: export it, put it into .env, or write \${${variable}:-a default}`]
}
