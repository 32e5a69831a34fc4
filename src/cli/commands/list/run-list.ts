import { z } from 'zod'
import { findRuns, type FoundRun, RunReader } from '../../../store/index.ts'
import { exitCodes, type ExitCode } from '../../terminal/exit-codes.ts'
import { formatAge, formatCount, formatScore } from '../../terminal/format.ts'
import { textTable } from '../../terminal/layout.ts'
import { fitText, printableLine, type Style } from '../../terminal/text.ts'
import { type Output, DelayedProgress } from '../../terminal/output.ts'
import { differingSettings, type Settings } from './differing-settings.ts'
import {
  emptyRootText,
  isGatewayRun,
  plannedRollouts,
  runsRoot,
  servingEnd,
  storedConfig,
} from '../../stored-runs/stored-run.ts'
import type { Invocation } from '../../command-line/command.ts'
import type { CommandIo } from '../../terminal/io.ts'
import type { listFlags } from './list-command.ts'

const shownSettings = 6
const shownValueColumns = 24

export async function runList({ flags }: Invocation<typeof listFlags>, io: CommandIo): Promise<ExitCode> {
  const root = runsRoot(flags.runs, io)
  const { runs, broken } = await findRuns(root)
  const progress = new DelayedProgress(io.stderr, 'reading results')
  const shown = runs.slice(0, flags.limit ?? 20)
  const settings = differingSettings(shown)
  const listed = shown.map((run) => Object.assign(describeRun(run, progress), { differs: settings.get(run) ?? {} }))
  progress[Symbol.dispose]()
  for (const { name, problem } of broken) void io.stderr.line(`${name} cannot be read as a run: ${problem}`)
  if (runs.length === 0) {
    const { stdout, stderr } = io
    void (flags.json ? stderr : stdout).line(`no runs in ${emptyRootText(root)}; ${io.program} eval makes one`)
    return exitCodes.ok
  }
  await io.stdout.lines(flags.json ? listed.map((run) => JSON.stringify(run)) : table(listed, io.stdout))
  const more = runs.length - listed.length
  if (more > 0 && !flags.json) void io.stdout.line(io.stdout.style.dim(`${formatCount(more)} more; --limit shows them`))
  return exitCodes.ok
}

interface ListedRun {
  readonly run: string
  readonly state: string
  /** How the last launch of a gateway or server ended, if it has ended. */
  readonly end?: string
  readonly environment: string
  readonly model: string
  /** Rollouts, or sessions of a gateway. */
  readonly ended: number
  /** See `plannedRollouts`. */
  readonly planned?: number
  readonly open?: number
  readonly scored: number
  readonly score: number | null
  readonly createdAt: string
  /** The settings in which the listed runs of its environment differ, as this run has them. */
  readonly differs: Settings
  readonly problem?: string
}

const resultsSchema = z.object({ ended: z.number(), scored: z.number(), score: z.number().nullable() })

function describeRun(found: FoundRun, progress: DelayedProgress): Omit<ListedRun, 'differs'> {
  const { environment, model } = storedConfig(found)
  const { state, createdAt } = found.run
  const end = servingEnd(found)
  const common = { run: found.name, state, ...(end !== undefined && { end }), environment, model, createdAt }
  const stored = storedResults(found)
  if (stored) return { ...common, ...stored, ...plannedRollouts(found, stored.ended) }
  try {
    using reader = RunReader.open(found.folder)
    if (isGatewayRun(found)) return { ...common, ...reader.sessions.counts(), scored: 0, score: null }
    const results = readResults(reader, progress)
    return { ...common, ...results, ...plannedRollouts(found, results.ended) }
  } catch (error) {
    // One run with a broken database must not hide the others.
    return { ...common, ended: 0, scored: 0, score: null, problem: String(error) }
  }
}

type Results = z.infer<typeof resultsSchema>

/** The results in the run's own file, written at the end of a launch. A launch that was cut off has not written them. */
function storedResults({ run }: FoundRun): Results | undefined {
  if (run.launches.at(-1)?.end === undefined) return undefined
  return resultsSchema.safeParse(run.provenance['results']).data
}

/** Counts the results one by one, at about 3 µs each. */
function readResults(reader: RunReader, progress: DelayedProgress): Results {
  let ended = 0
  let scored = 0
  let sum = 0
  for (const { reward } of reader.ended()) {
    progress.add()
    ended += 1
    if (reward === null) continue
    scored += 1
    sum += reward
  }
  return { ended, scored, score: scored === 0 ? null : sum / scored }
}

function table(runs: readonly ListedRun[], { style, tableWidth: width }: Output): readonly string[] {
  const now = Date.now()
  const hasDifferences = runs.some(({ differs }) => Object.keys(differs).length > 0)
  return textTable({
    columns: [
      // The name is never shortened, because other commands need it.
      { title: 'run' },
      { title: 'state' },
      { title: 'environment', shrinks: true, isOptional: true },
      { title: 'model', shrinks: true, isOptional: true },
      { title: 'ended', align: 'right' },
      { title: 'score', align: 'right' },
      { title: 'started' },
      ...(hasDifferences ? [{ title: 'differs in', shrinks: true, isOptional: true }] : []),
    ],
    rows: runs.map((run) => [
      run.run,
      stateText(run, style),
      printableLine(run.environment),
      printableLine(run.model),
      endedText(run),
      run.score === null ? '–' : formatScore(run.score),
      formatAge(Date.parse(run.createdAt), now),
      differsText(run.differs),
    ]),
    width,
    style,
  })
}

function differsText(differs: Settings): string {
  const settings = Object.entries(differs).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return `${name}=${fitText(printableLine(text), shownValueColumns)}`
  })
  const more = settings.length - shownSettings
  return [...settings.slice(0, shownSettings), ...(more > 0 ? [`and ${more} more`] : [])].join(' ')
}

function endedText({ ended, planned, open }: ListedRun): string {
  if (planned !== undefined) return `${formatCount(ended)} of ${formatCount(planned)}`
  return open === undefined ? formatCount(ended) : `${formatCount(ended)} (${formatCount(open)} open)`
}

function stateText({ state, end, problem }: ListedRun, style: Style): string {
  if (problem !== undefined) return style.bad('unreadable')
  if (state === 'complete') return style.good(state)
  return state === 'running' ? style.accent(state) : style.warn(end ?? state)
}
