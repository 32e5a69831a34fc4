import { formatQuantity } from '../format/count.ts'
import { formatDuration } from '../format/duration.ts'
import { printable, printableLine } from '../format/printable.ts'
import type { Style } from '../format/style.ts'
import { wrapText } from '../format/text-width.ts'
import { isHealthy, type Examination, type Step } from './examination.ts'

interface Frame {
  readonly width: number
  readonly style: Style
}

const indent = '  '
const stepWidth = 'initialise'.length + 2
const shownStderrLines = 8

/** One server: its steps, what it wrote, what it costs, what to do, and the verdict. */
export function examinationText(examination: Examination, frame: Frame): readonly string[] {
  const { server, steps, stderr, exitCode, sharing, hints } = examination
  const { style } = frame
  return [
    style.bold(server),
    ...steps.map((step) => stepLine(step, style)),
    ...(exitCode === undefined ? [] : [`${indent}exit code ${exitCode}`]),
    ...(stderr === undefined || isHealthy(examination) ? [] : stderrLines(stderr, style)),
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
  const { steps, tools, isRequired } = examination
  if (isHealthy(examination)) {
    const startMs = steps.reduce((sum, { ms }) => sum + ms, 0)
    return style.good(`fine: ready in ${formatDuration(startMs)} with ${formatQuantity(tools?.count ?? 0, 'tool')}`)
  }
  const failed = steps.find(({ ok }) => !ok)?.step ?? ''
  const consequence = isRequired
    ? 'it is required, so every rollout would end as tool_infra_error'
    : 'it is not required: rollouts do without it'
  return style.bad(`fails at ${failed}; ${consequence}`)
}
