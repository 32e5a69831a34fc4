import type { Invocation } from '../../command-line/command.ts'
import { usageError } from '../../command-line/flag-value.ts'
import type { FlagValues } from '../../command-line/flags.ts'
import { locateRun, readRun, runReference, runsRoot, storedConfig } from '../../stored-runs/stored-run.ts'
import { type ExitCode, exitCodes } from '../../terminal/exit-codes.ts'
import { formatAge, formatCount, formatDuration, formatQuantity, formatShare } from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { type Column, textTable } from '../../terminal/layout.ts'
import { printableLine, type Style, wrapText } from '../../terminal/text.ts'
import { diagnoseRun, type RunDiagnosis } from './diagnose-run.ts'
import { modelFromFlags, readModelsFile } from '../eval/options-from-flags.ts'
import type { doctorFlags } from './doctor-command.ts'
import { openModel, reportJson, reportLines } from './model-report.ts'
import { type Check, diskCheck, lagCheck, machineChecks } from './machine-checks.ts'

export async function runDoctor(
  { arguments: [name], flags }: Invocation<typeof doctorFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const root = runsRoot(flags.runs, io)
  const { tableWidth: width, style } = io.stdout
  if (flags.model !== undefined) {
    if (name !== undefined) throw usageError('give either a run or --model, not both')
    await io.stdout.lines(await modelLines(flags.model, flags, io))
    return exitCodes.ok
  }
  const unfit = (['base-url', 'api-key-env', 'models', 'tokenizer'] as const).find((flag) => flags[flag] !== undefined)
  if (unfit !== undefined) throw usageError(`--${unfit} is for the report on a model; name it with --model`)
  const lines =
    name === undefined
      ? await machineLines(root, { width, style }, flags.json === true)
      : await runLines({ name, root }, io, flags.json === true)
  await io.stdout.lines(lines)
  return exitCodes.ok
}

async function machineLines(root: string, frame: Frame, asJson: boolean): Promise<readonly string[]> {
  // Measured one after the other: syncing the disk at the same time would show as lag.
  const checks = [...machineChecks(), await lagCheck(), await diskCheck(root)]
  if (!asJson) return machineText(checks, frame)
  return [JSON.stringify(Object.fromEntries(checks.map(({ key, facts, advice }) => [key, { ...facts, advice }])))]
}

async function runLines(
  { name, root }: { readonly name: string; readonly root: string },
  io: CommandIo,
  asJson: boolean,
): Promise<readonly string[]> {
  const found = await locateRun(name, root, io)
  const diagnosis = await readRun(found, diagnoseRun)
  const { environment, model } = storedConfig(found)
  if (asJson) return [JSON.stringify({ run: found.name, environment, model, ...diagnosis })]
  const { tableWidth: width, style } = io.stdout
  return diagnosisText(diagnosis, { width, style }, `${io.program} show ${runReference(found.folder, io)}`)
}

async function modelLines(
  name: string,
  flags: FlagValues<typeof doctorFlags>,
  io: CommandIo,
): Promise<readonly string[]> {
  const models = flags.models === undefined ? {} : await readModelsFile(flags.models, io.cwd)
  const model = modelFromFlags({ name, flags: { ...flags, 'exact-tokens': true }, simulator: {}, models, env: io.env })
  const stream = await openModel(model, models, io.env)
  const { tableWidth: width, style } = io.stdout
  return flags.json ? [reportJson(stream)] : reportLines(stream, { width, style })
}

interface Frame {
  readonly width: number
  readonly style: Style
}

const shownFunctions = 20
const indent = '  '

function machineText(checks: readonly Check[], { width, style }: Frame): readonly string[] {
  const labelWidth = Math.max(...checks.map(({ name }) => name.length)) + 2
  return checks.flatMap(({ name, shown, advice }) => {
    const mark = advice === undefined ? style.good('✓') : style.warn('!')
    const line = `${mark} ${style.bold(name.padEnd(labelWidth))}${shown}`
    if (advice === undefined) return [line]
    const room = Math.max(20, width - labelWidth - 2)
    return [line, ...wrapText(advice, room).map((text) => `${' '.repeat(labelWidth + 2)}${style.warn(text)}`)]
  })
}

/** `show` is the command that shows the run. */
function diagnosisText(diagnosis: RunDiagnosis, frame: Frame, show: string): readonly string[] {
  return [
    ...section('Functions that blocked a loop', blockedLines(diagnosis, frame), frame),
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
  return textTable({ columns: titles, rows, width: frame.width - indent.length, style: frame.style })
}

function blockedLines({ blocked }: RunDiagnosis, frame: Frame): readonly string[] {
  if (blocked.length === 0) return []
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
      formatAge(lastAt, Date.now()),
    ]),
  )
  const more = blocked.length - shown.length
  return [
    ...lines,
    ...(more > 0 ? [`${formatCount(more)} more; --json has them`] : []),
    'A long computation delays every rollout on the same loop: wrap a reward in offload(…), make a tool asynchronous.',
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
