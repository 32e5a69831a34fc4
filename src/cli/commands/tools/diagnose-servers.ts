import { formatDuration, formatQuantity } from '../../terminal/format.ts'
import { printable, printableLine, type Style, wrapText } from '../../terminal/text.ts'
import { exitCodes, type ExitCode } from '../../terminal/exit-codes.ts'
import { diagnose, failedStep, isMisconfigured, type Diagnosis, type Opened, type Step } from './diagnosis.ts'
import { onlyServer, type ToolCommandContext, type ToolSource } from './tool-source.ts'

interface Frame {
  readonly width: number
  readonly style: Style
}

const indent = '  '
const stepWidth = 'config'.length + 2
const shownStderrLines = 8

/** `millrace tools doctor`: opens one server after the other, so that none is slow because of another. */
export async function diagnoseServers(
  source: ToolSource,
  { server, json: asJson }: { readonly server?: string; readonly json?: true },
  around: ToolCommandContext,
): Promise<ExitCode> {
  const { stdout } = around.io
  const diagnoses: Diagnosis[] = []
  const opened: Opened = { catalogues: [], configs: {} }
  for (const name of Object.keys(onlyServer(source, server).servers)) {
    const diagnosis = await diagnose(source, name, opened, around)
    around.signal.throwIfAborted()
    diagnoses.push(diagnosis)
    if (!asJson) await stdout.lines(diagnosisText(diagnosis, { width: stdout.tableWidth, style: stdout.style }))
  }
  const healthy = diagnoses.filter((each) => failedStep(each) === undefined)
  if (asJson) {
    void stdout.line(JSON.stringify({ healthy: healthy.map((each) => each.server), servers: diagnoses }))
  } else if (diagnoses.length === 0) {
    void stdout.line(`${source.environment?.name ?? source.label} has no tool servers, so there is nothing to examine`)
  }
  if (diagnoses.some(isMisconfigured)) return exitCodes.usage
  return diagnoses.some((each) => each.isRequired && !healthy.includes(each)) ? exitCodes.failed : exitCodes.ok
}

function diagnosisText(diagnosis: Diagnosis, frame: Frame): readonly string[] {
  const { server, steps, stderr, exitCode, sharing, hints } = diagnosis
  const { style } = frame
  return [
    style.bold(server),
    ...steps.map((step) => stepLine(step, style)),
    ...(exitCode === undefined ? [] : [`${indent}exit code ${exitCode}`]),
    ...(stderr === undefined ? [] : stderrLines(stderr, style)),
    ...(sharing === undefined ? [] : note('sharing', sharing, frame)),
    ...hints.flatMap((hint) => note('hint', hint, frame)),
    `${indent}${conclusion(diagnosis, style)}`,
    '',
  ]
}

function stepLine({ step, ok, ms, shown }: Step, style: Style): string {
  const mark = ok ? style.good('✓') : style.bad('✗')
  const time = style.dim(formatDuration(ms).padStart(7))
  const text = printableLine(shown)
  return `${indent}${mark} ${step.padEnd(stepWidth)}${time}  ${ok ? text : style.bad(text)}`
}

function stderrLines(stderr: string, style: Style): string[] {
  const lines = printable(stderr).trimEnd().split('\n')
  const cut = lines.length > shownStderrLines ? [`${indent}${indent}…`] : []
  return [
    `${indent}the end of its standard error:`,
    ...cut,
    ...lines.slice(-shownStderrLines).map((line) => `${indent}${indent}${style.dim(line)}`),
  ]
}

function note(name: string, text: string, { width, style }: Frame): string[] {
  const column = indent.length + 'sharing: '.length
  const [first = '', ...rest] = wrapText(printable(text), Math.max(40, width - column))
  return [
    `${indent}${style.accent(`${name}:`.padEnd(column - indent.length))}${first}`,
    ...rest.map((line) => ' '.repeat(column) + line),
  ]
}

function conclusion(diagnosis: Diagnosis, style: Style): string {
  const failed = failedStep(diagnosis)
  if (failed) return style.bad(`fails at ${failed.step}; ${consequence(diagnosis)}`)
  const startMs = diagnosis.steps.reduce((sum, { ms }) => sum + ms, 0)
  return style.good(
    `fine: ready in ${formatDuration(startMs)} with ${formatQuantity(diagnosis.tools?.count ?? 0, 'tool')}`,
  )
}

function consequence(diagnosis: Diagnosis): string {
  if (isMisconfigured(diagnosis)) return 'millrace eval refuses to start with such a configuration (exit code 2)'
  if (!diagnosis.isRequired) return 'it is not required: rollouts run without it'
  return (
    'it is required, so millrace eval ends before anything is run (exit code 1); with --no-preflight each rollout ends ' +
    'as tool_infra_error'
  )
}
