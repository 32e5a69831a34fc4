import { formatCount, formatQuantity, formatShare } from '../format/count.ts'
import { formatAge } from '../format/age.ts'
import { columns, type Column } from '../format/columns.ts'
import { formatDuration } from '../format/duration.ts'
import { printableLine } from '../format/printable.ts'
import type { Style } from '../format/style.ts'
import { wrapText } from '../format/text-width.ts'
import type { Check } from './_check.ts'
import type { RunDiagnosis } from './diagnose-run.ts'

interface Frame {
  readonly width: number
  readonly style: Style
}

const shownFunctions = 20
const indent = '  '

/** One line for each check, with its advice below it. */
export function machineText(checks: readonly Check[], { width, style }: Frame): readonly string[] {
  const labelWidth = Math.max(...checks.map(({ name }) => name.length)) + 2
  return checks.flatMap(({ name, shown, advice }) => {
    const mark = advice === undefined ? style.good('✓') : style.warn('!')
    const line = `${mark} ${style.bold(name.padEnd(labelWidth))}${shown}`
    if (advice === undefined) return [line]
    const room = Math.max(20, width - labelWidth - 2)
    return [line, ...wrapText(advice, room).map((text) => `${' '.repeat(labelWidth + 2)}${style.warn(text)}`)]
  })
}

export function diagnosisText(
  diagnosis: RunDiagnosis,
  {
    now,
    show,
    ...frame
  }: Frame & {
    readonly now: number
    /** The command that shows the run. */
    readonly show: string
  },
): readonly string[] {
  return [
    ...section('Functions that blocked a loop', blockedLines(diagnosis, now, frame), frame),
    ...section('Limits that moved', limitLines(diagnosis, frame), frame),
    ...section('Tool servers that were away', serverLines(diagnosis, frame), frame),
    ...section('Outcomes that infrastructure or the environment caused', outcomeLines(diagnosis, show, frame), frame),
    ...abandonedLines(diagnosis),
  ]
}

function section(title: string, lines: readonly string[], { style }: Frame): string[] {
  return [style.bold(title), ...(lines.length > 0 ? lines : ['none']).map((line) => indent + line), '']
}

function table(frame: Frame, titles: readonly Column[], rows: readonly (readonly string[])[]): readonly string[] {
  if (rows.length === 0) return []
  return columns({ columns: titles, rows, width: frame.width - indent.length, style: frame.style })
}

function blockedLines({ blocked }: RunDiagnosis, now: number, frame: Frame): readonly string[] {
  const shown = blocked.slice(0, shownFunctions)
  const lines = table(
    frame,
    [
      { title: 'function', shrinks: true },
      { title: 'times', align: 'right' },
      { title: 'worst', align: 'right' },
      { title: 'workers' },
      { title: 'last' },
    ],
    shown.map(({ blockedBy, times, worstMs, workers, lastAt }) => [
      printableLine(blockedBy),
      formatCount(times),
      frame.style.bad(formatDuration(worstMs)),
      workers.length === 0 ? '–' : workers.map((id) => (id < 0 ? `quarantine ${-id}` : id)).join(', '),
      formatAge(lastAt, now),
    ]),
  )
  if (blocked.length === 0) return []
  const more =
    blocked.length > shown.length ? [`${formatCount(blocked.length - shown.length)} more; --json has them`] : []
  return [
    ...lines,
    ...more,
    'A function that computes holds up every rollout beside it: make a reward heavy(…), a tool asynchronous.',
  ]
}

function limitLines({ limits }: RunDiagnosis, frame: Frame): readonly string[] {
  return table(
    frame,
    [
      { title: 'model', shrinks: true },
      { title: 'cut', align: 'right' },
      { title: 'lowest', align: 'right' },
      { title: 'parked', align: 'right' },
      { title: 'because', shrinks: true },
    ],
    limits.map(({ model, cuts, lowest, parked, lastWhy }) => [
      printableLine(model),
      formatCount(cuts),
      formatCount(lowest),
      formatCount(parked),
      printableLine(lastWhy),
    ]),
  )
}

function serverLines({ servers }: RunDiagnosis, frame: Frame): readonly string[] {
  return table(
    frame,
    [
      { title: 'server', shrinks: true },
      { title: 'times', align: 'right' },
      { title: 'longest', align: 'right' },
      { title: 'back' },
      { title: 'because', shrinks: true },
    ],
    servers.map(({ server, times, longestMs, isBack, lastWhy }) => [
      printableLine(server),
      formatCount(times),
      longestMs === 0 ? '–' : formatDuration(longestMs),
      isBack ? 'yes' : frame.style.bad('no'),
      printableLine(lastWhy),
    ]),
  )
}

function outcomeLines({ outcomes, ended }: RunDiagnosis, show: string, frame: Frame): readonly string[] {
  return table(
    frame,
    [
      { title: 'outcome' },
      { title: 'rollouts', align: 'right' },
      { title: 'share', align: 'right' },
      { title: 'look at them' },
    ],
    Object.entries(outcomes).map(([outcome, count]) => [
      outcome,
      formatCount(count),
      formatShare(count, ended),
      `${show} --outcome ${outcome}`,
    ]),
  )
}

function abandonedLines({ abandoned: { attempts, lastWhy } }: RunDiagnosis): string[] {
  if (attempts === 0) return []
  const why = lastWhy === undefined ? '' : `; the last one because ${printableLine(lastWhy)}`
  return [`${formatQuantity(attempts, 'attempt')} started over${why}`]
}
