import { formatQuantity } from '../format/count.ts'
import { formatDuration } from '../format/duration.ts'
import { printable, printableLine } from '../format/printable.ts'
import type { Style } from '../format/style.ts'
import { wrapText } from '../format/text-width.ts'
import { failedStep, isHealthy, isMisconfigured, type Examination, type Step } from './_examination.ts'

interface Frame {
  readonly width: number
  readonly style: Style
}

const indent = '  '
const stepWidth = 'initialise'.length + 2
const shownStderrLines = 8

/** The examination of one server: its steps, its stderr, its cost, hints, and the verdict. */
export function examinationText(examination: Examination, frame: Frame): readonly string[] {
  const { server, steps, stderr, exitCode, sharing, hints } = examination
  const { style } = frame
  return [
    style.bold(server),
    ...steps.map((step) => stepLine(step, style)),
    ...(exitCode === undefined ? [] : [`${indent}exit code ${exitCode}`]),
    ...(stderr === undefined || isHealthy(examination) || isMisconfigured(examination)
      ? []
      : stderrLines(stderr, style)),
    ...(sharing === undefined ? [] : note('sharing', sharing, frame)),
    ...hints.flatMap((hint) => note('hint', hint, frame)),
    `${indent}${verdict(examination, style)}`,
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

function verdict(examination: Examination, style: Style): string {
  const { steps, tools } = examination
  const failed = failedStep(examination)
  if (!failed) {
    const startMs = steps.reduce((sum, { ms }) => sum + ms, 0)
    return style.good(`fine: ready in ${formatDuration(startMs)} with ${formatQuantity(tools?.count ?? 0, 'tool')}`)
  }
  return style.bad(`fails at ${failed.step}; ${consequence(examination)}`)
}

function consequence(examination: Examination): string {
  if (isMisconfigured(examination)) return 'millrace eval refuses to start with such a configuration (exit code 2)'
  if (!examination.isRequired) return 'it is not required: rollouts do without it'
  return (
    'it is required, so millrace eval ends before anything is run (exit code 1); with --no-preflight each rollout ends ' +
    'as tool_infra_error'
  )
}
