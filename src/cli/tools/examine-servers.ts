import { MillraceError } from '../../errors/index.ts'
import { AbortScope } from '../../kit/index.ts'
import { isJsonObject } from '../../schema/index.ts'
import { Redaction, type ServerConfig } from '../../tools/index.ts'
import { exitCodes, type ExitCode } from '../exit-codes.ts'
import type { CommandIo } from '../io.ts'
import { isHealthy, Steps, type Examination } from './examination.ts'
import { examinationText } from './examination-text.ts'
import { examineProcess } from './examine-process.ts'
import { examineUrl } from './examine-url.ts'
import { sharingAdvice } from './sharing-advice.ts'
import { isRequired, onlyServer, serverConfig, transportOf, type ToolSource } from './tool-source.ts'

interface Surroundings {
  readonly io: CommandIo
  readonly signal: AbortSignal
}

/** What `ServerOptions.startTimeoutMs` is if not given. */
const defaultStartMs = 30_000

/**
 * What `millrace tools doctor` does: one server after the other, so that none is slow because of another. Each is shown as soon
 * as it is known.
 */
export async function examineServers(
  source: ToolSource,
  { server, asJson }: { readonly server: string | undefined; readonly asJson: boolean },
  around: Surroundings,
): Promise<ExitCode> {
  const { stdout } = around.io
  const examinations: Examination[] = []
  const chosen = onlyServer(source, server)
  for (const name of Object.keys(chosen.servers)) {
    const examination = await examine(source, name, around)
    around.signal.throwIfAborted()
    examinations.push(examination)
    const width = stdout.isTTY ? stdout.columns : Number.POSITIVE_INFINITY
    if (!asJson) for (const line of examinationText(examination, { width, style: stdout.style })) void stdout.line(line)
  }
  if (asJson) {
    const healthy = examinations.filter(isHealthy).map((each) => each.server)
    void stdout.line(JSON.stringify({ healthy, servers: examinations }))
  } else if (examinations.length === 0) void stdout.line(`${source.label} has no servers`)
  return examinations.some((each) => each.isRequired && !isHealthy(each)) ? exitCodes.failed : exitCodes.ok
}

async function examine(source: ToolSource, name: string, { io, signal }: Surroundings): Promise<Examination> {
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
  const findings =
    'command' in config
      ? await examineProcess({ server: name, config, steps, cwd: io.cwd, signal: scope.signal })
      : await examineUrl({ config, steps, signal: scope.signal })
  const { tools } = findings
  const examination = {
    ...facts,
    steps: steps.taken,
    ...findings,
    ...(tools && { sharing: sharingAdvice(name, config, { ...findings, tools }) }),
  }
  return withoutSecrets(examination, new Redaction(config))
}

/** As it is written: what is filled in may be secret. */
function entryText(entry: unknown): string {
  if (!isJsonObject(entry)) return ''
  const { command, args = [], url } = entry
  if (command === undefined) return typeof url === 'string' ? url : ''
  return [command, ...(Array.isArray(args) ? args : [])].join(' ')
}

/** What a server says of itself may hold what it was given. */
function withoutSecrets(examination: Examination, redaction: Redaction): Examination {
  const { steps, hints, stderr } = examination
  return {
    ...examination,
    steps: steps.map(({ step, ok, ms, shown }) => ({ step, ok, ms, shown: redaction.text(shown) })),
    hints: hints.map((hint) => redaction.text(hint)),
    ...(stderr !== undefined && { stderr: redaction.text(stderr) }),
  }
}

function configHints(error: unknown): string[] {
  const variable = error instanceof MillraceError ? error.data['variable'] : undefined
  if (typeof variable !== 'string') return ['docs/tools.md lists what a server may be given']
  return [`${variable} is empty or not set: export it, put it into .env, or write \${${variable}:-a default}`]
}
