import { mixedCodeNotice, type Spending, type Summary } from '../../../eval/index.ts'
import { outcomeNames, outcomes, type Usage } from '../../../schema/index.ts'
import { runReference } from '../../stored-runs/stored-run.ts'
import {
  formatCompactCount,
  formatCount,
  formatDuration,
  formatEstimate,
  formatMoney,
  formatQuantity,
  formatRate,
  formatScore,
  formatShare,
  intervalNote,
} from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { labelColumns, labelled, panel, type PanelSection } from '../../terminal/layout.ts'
import {
  fitText,
  inOutcomeColour,
  padText,
  printable,
  printableLine,
  type Style,
  wrapText,
} from '../../terminal/text.ts'

const widest = 80
const narrowest = 40
const cellColumns = 9
const mostCells = 7
const shownComponents = 12
/** The most lines of a reason: it may be a page of stack or HTML, and the transcript has all of it. Reasons of ours fit. */
const reasonLines = 4
const faultLineCount = 2
const shownServers = 3
const shownFaults = 3
const shownCauseChars = 200

/** A summary that may come from a stored run, which has no end while it is still running. */
export type ShownSummary = Omit<Summary, 'end' | 'state' | 'missingTasks'> & {
  readonly end: Summary['end'] | 'running' | 'unfinished'
  readonly state?: Summary['state']
  readonly missingTasks?: Summary['missingTasks']
}

const ends: Readonly<Record<ShownSummary['end'], string>> = {
  complete: 'complete',
  drained: 'drained, can be continued',
  stopped: 'stopped, can be continued',
  max_cost: 'cost limit reached',
  failed: 'failed, can be continued',
  running: 'running',
  unfinished: 'unfinished, can be continued',
}

interface Frame {
  /** The columns between the edges of the box. */
  readonly room: number
  readonly style: Style
}

/** The results of a run as a box, and the commands for more details, which use the given names of program and run. */
export function summaryText(
  summary: ShownSummary,
  options: { readonly columns: number; readonly style: Style; readonly program: string; readonly run: string },
): string {
  const { style } = options
  const columns = Math.max(narrowest, Math.min(widest, options.columns))
  const frame: Frame = { room: columns - 4, style }
  // A launch may complete its own work and still leave its run open.
  const end = summary.end === 'complete' ? (summary.state ?? summary.end) : summary.end
  const title = `${printableLine(summary.environment)} · ${printableLine(summary.model)}`
  const lines = panel({
    sections: [
      { title, lines: rewardLines(summary, frame) },
      { title: `pass: a reward of at least ${summary.passThreshold}`, lines: passLines(summary, frame) },
      ...componentSections(summary, frame),
      { title: 'outcomes', lines: outcomeLines(summary, frame) },
      ...reasonSections(summary, frame),
      { title: 'time', lines: timeLines(summary, frame) },
      { title: 'usage', lines: usageLines(summary, frame) },
    ],
    note: `${ends[end]} · ${formatDuration(summary.wallMs)}`,
    columns,
    style,
  })
  return `${[...lines, ...nextLines(summary, options)].join('\n')}\n`
}

function rewardLines(summary: ShownSummary, frame: Frame): readonly string[] {
  const { score } = summary
  const value = formatEstimate(score)
  const explanation = intervalNote(score)
  const fits = labelColumns + value.length + 3 + explanation.length <= frame.room
  const shown = score && fits ? `   ${frame.style.dim(explanation)}` : ''
  const parts = [
    `${formatCount(summary.scored)} of ${formatQuantity(summary.rollouts, 'rollout')} scored`,
    formatQuantity(summary.tasks, 'task'),
  ]
  if (summary.voided > 0) parts.push(`${formatCount(summary.voided)} voided with their group`)
  return [
    ...rows('reward', [`${frame.style.bold(value)}${shown}`], frame),
    ...(score && !fits ? wrapped('', explanation, frame) : []),
    ...wrapped('over', parts.join(' · '), frame),
  ]
}

function passLines(summary: ShownSummary, frame: Frame): readonly string[] {
  const lines: string[] = []
  const perLine = Math.min(mostCells, Math.floor((frame.room - labelColumns) / cellColumns))
  for (let start = 0; start < summary.pass.length; start += perLine) {
    const cells = summary.pass.slice(start, start + perLine)
    lines.push(
      ...rows('k', [figures(cells.map(({ k }) => frame.style.dim(String(k))))], frame),
      ...rows('pass@k', [figures(cells.map(({ atK }) => formatScore(atK)))], frame),
      ...rows('pass^k', [figures(cells.map(({ hatK }) => formatScore(hatK)))], frame),
    )
  }
  const tasks = summary.pass[0]?.tasks ?? 0
  // For a server's run only pass@1 is shown: its requests decide how many attempts a task has.
  const condition = summary.pass.length === 1 ? 'scored' : `with all ${summary.attemptsPerTask} attempts scored`
  const over = `${formatCount(tasks)} of ${formatQuantity(summary.tasks, 'task')} ${condition}`
  return [...lines, ...wrapped('over', over, frame)]
}

function componentSections(summary: ShownSummary, { room, style }: Frame): readonly PanelSection[] {
  const components = Object.entries(summary.components)
  // A single component is the reward itself, which is shown already.
  if (components.length === 0 || (components.length === 1 && components[0]?.[1].weight === 1)) return []
  const nameColumns = Math.min(26, room - 3 * cellColumns)
  const line = (name: string, cells: readonly string[]): string => padText(name, nameColumns) + figures(cells)
  const lines = components
    .slice(0, shownComponents)
    .map(([name, { mean, weight, rollouts }]) =>
      line(printableLine(name), [formatScore(mean), weight === 0 ? 'metric' : String(weight), formatCount(rollouts)]),
    )
  const more = components.length - shownComponents
  if (more > 0) lines.push(style.dim(`and ${more} more: see --json`))
  return [{ title: 'components', lines: [style.dim(line('', ['mean', 'weight', 'rollouts'])), ...lines] }]
}

function outcomeLines(summary: ShownSummary, { room, style }: Frame): readonly string[] {
  const nameColumns = Math.min(20, room - 2 * cellColumns)
  const lines = outcomeNames.flatMap((name) => {
    const count = summary.outcomes[name]
    if (count === 0) return []
    const { scored, truncated } = outcomes[name]
    const kept = summary.voided > 0 ? 'scored unless voided' : 'scored'
    const meaning = truncated ? `${kept}, truncated` : scored ? kept : 'not scored'
    const line = `${inOutcomeColour(padText(name, nameColumns), name, style)}${figures([formatCount(count), formatShare(count, summary.rollouts)])}`
    // If there is no room for the word, only the colour tells.
    const fits = nameColumns + 2 * cellColumns + 3 + meaning.length <= room
    return [fits ? `${line}   ${style.dim(meaning)}` : line]
  })
  const rest = lines.length === 0 ? 'all' : 'all others'
  return [...lines, style.dim(`${padText(rest, nameColumns)}${figures(['0'])}`)]
}

function reasonSections(summary: ShownSummary, { room, style }: Frame): readonly PanelSection[] {
  const lines = outcomeNames.flatMap((name) => {
    const reason = summary.reasons[name]
    if (reason === undefined) return []
    return [
      `${inOutcomeColour(name, name, style)}${style.dim(summary.outcomes[name] > 1 ? ', the first of them' : '')}`,
      ...shortened(reason, room - 2, reasonLines).map((line) => `  ${line}`),
    ]
  })
  return lines.length === 0 ? [] : [{ title: 'why', lines }]
}

/** The first lines of a text; of one that has lines of its own also the last, which in a traceback is the error. */
function shortened(text: string, columns: number, lines: number): readonly string[] {
  const paragraphs = printable(text).split('\n').map(printableLine).filter(Boolean)
  const all = wrapText(paragraphs.join('\n'), columns)
  const end = paragraphs.length > 1 ? ['…', ...all.slice(-1)] : [`${all[lines - 1]} …`]
  const shown = all.length > lines ? [...all.slice(0, lines - end.length), ...end] : all
  return shown.map((line) => fitText(line, columns))
}

function timeLines(summary: ShownSummary, frame: Frame): readonly string[] {
  const names = ['wall', 'model', 'tools', 'reward', 'wait'] as const
  const durations = names.map((name) => summary.durations[name])
  const rate = rows('rate', [formatRate(summary.perSecond).replace('/', ' rollouts/')], frame)
  if (labelColumns + names.length * cellColumns <= frame.room) {
    return [
      frame.style.dim(padText('', labelColumns) + figures(names)),
      ...rows('p50', [figures(durations.map(({ p50Ms }) => formatDuration(p50Ms)))], frame),
      ...rows('p95', [figures(durations.map(({ p95Ms }) => formatDuration(p95Ms)))], frame),
      ...rate,
    ]
  }
  return [
    frame.style.dim(padText('', labelColumns) + figures(['p50', 'p95'])),
    ...durations.flatMap(({ p50Ms, p95Ms }, index) =>
      rows(names[index] ?? '', [figures([formatDuration(p50Ms), formatDuration(p95Ms)])], frame),
    ),
    ...rate,
  ]
}

function usageLines(summary: ShownSummary, frame: Frame): readonly string[] {
  const { usage, judgeUsage, judgeModels, tools, discarded, unfinished } = summary
  const lines = [...wrapped('tokens', tokens(usage), frame)]
  if (usage.captured !== undefined) {
    const share = `${formatCount(usage.captured)} of ${formatCount(usage.calls)} repl${usage.calls === 1 ? 'y' : 'ies'}`
    lines.push(
      ...wrapped('captured', `token ids and log-probabilities of ${share}`, frame),
      ...driftLines(usage, frame),
    )
  }
  if (judgeUsage.calls > 0) {
    const models = judgeModels.map(printableLine).join(', ')
    lines.push(...wrapped('judge', [models, tokens(judgeUsage)].filter(Boolean).join(' · '), frame))
  }
  if (tools.calls > 0) {
    const errors = tools.failed > 0 ? ` · ${formatCount(tools.failed)} failed` : ''
    lines.push(...wrapped('tools', `${formatQuantity(tools.calls, 'call')}${errors}`, frame))
    lines.push(...faultLines(summary, frame))
  }
  lines.push(...wrapped('calls', calls(summary), frame), ...wrapped('cost', cost(summary), frame))
  if (discarded.attempts > 0) lines.push(...wrapped('retried', spent(discarded, 'that did not count'), frame))
  if (unfinished.usage.calls > 0) lines.push(...wrapped('open', spent(unfinished, openText(unfinished)), frame))
  return lines
}

function driftLines({ laterTurns = 0, driftedTurns = 0, driftedTokens = 0 }: Usage, frame: Frame): readonly string[] {
  if (laterTurns === 0) return []
  const share = `${formatCount(driftedTurns)} of ${formatQuantity(laterTurns, 'later turn')}`
  if (driftedTurns === 0) return wrapped('drift', share, frame)
  const advice = 'Exact tokens (--exact-tokens) keep conversations in one row.'
  const affected = `${formatCompactCount(driftedTokens)} tokens affected`
  return [...wrapped('drift', `${share} · ${affected}`, frame), ...wrapped('', advice, frame)]
}

function openText({ attempts, waitForGroup }: ShownSummary['unfinished']): string {
  if (waitForGroup === 0) return 'not ended yet'
  if (waitForGroup === attempts) return 'waiting for the rest of the group'
  return `not ended yet (${formatCount(waitForGroup)} only waiting for the group)`
}

function spent({ attempts, usage, costUsd, costUnknown }: Spending, which: string): string {
  // An attempt that made no calls costs nothing, even if prices are unknown.
  const isKnown = costUnknown === 0 || costUsd > 0
  const money = isKnown ? formatMoney(costUsd) + ofUnknownPrice(costUnknown, 'attempt') : formatMoney(null)
  return `${formatQuantity(attempts, 'attempt')} ${which}: ${tokens(usage)} · ${money}`
}

/** The errors that tools threw: otherwise a tool's bug shows only in transcripts. */
function faultLines({ toolFaults }: ShownSummary, frame: Frame): readonly string[] {
  const room = frame.room - labelColumns
  const lines = toolFaults.slice(0, shownFaults).flatMap(({ tool, kind, message, calls: times }) => {
    const text = `${tool} threw ${kind}${times > 1 ? ` ${formatCount(times)} times` : ''}: ${message}`
    return shortened(text, room, faultLineCount)
  })
  const more = toolFaults.length - shownFaults
  if (more > 0) lines.push(`and ${formatQuantity(more, 'more kind')}: see --json`)
  return rows('', lines, frame)
}

function calls({ usage, judgeUsage, tries, discarded, unfinished }: ShownSummary): string {
  const count = usage.calls + judgeUsage.calls
  const again = tries.tries - tries.calls
  if (again > 0) return `${formatCount(count)} · ${formatCount(again)} retries after a failure`
  // The tries of a launch that was cut off are not known. Those that are known are of all attempts.
  const knowsAll = tries.calls >= count + discarded.usage.calls + unfinished.usage.calls
  return knowsAll && count > 0 ? `${formatCount(count)}, all at the first try` : formatCount(count)
}

function cost(summary: ShownSummary): string {
  const { cost: usd, costUnknown, discarded, unfinished } = summary
  if (usd === null) {
    // A judge, or the model of the turns that a fork repeats, may be the one without a price.
    const isOneAlone = summary.judgeUsage.calls === 0 && summary.forkedFrom === undefined
    const why = isOneAlone
      ? `no price is known for ${printableLine(summary.model)}`
      : 'a model in use has no known price'
    return `unknown: ${why}`
  }
  const beside = discarded.costUsd + unfinished.costUsd
  const inAll = beside === 0 ? '' : ` · ${formatMoney(usd + beside)} in total`
  return formatMoney(usd) + ofUnknownPrice(costUnknown, 'rollout') + inAll
}

function ofUnknownPrice(count: number, what: string): string {
  return count === 0 ? '' : ` + ${formatQuantity(count, what)} of unknown price`
}

function tokens(usage: Usage): string {
  const cached = usage.cachedInput > 0 ? ` (${formatShare(usage.cachedInput, usage.input)} cached)` : ''
  const reasoning = usage.reasoning > 0 ? ` (${formatShare(usage.reasoning, usage.output)} reasoning)` : ''
  // Servers need not report what a call used.
  const { estimated = 0, calls: all } = usage
  const share = estimated === all ? 'estimated' : `${formatShare(estimated, all)} of calls estimated`
  const estimate = estimated === 0 ? '' : ` · ${share}`
  return `${formatCompactCount(usage.input)} in${cached} · ${formatCompactCount(usage.output)} out${reasoning}${estimate}`
}

function nextLines(
  summary: ShownSummary,
  { style, program, run }: { readonly style: Style; readonly program: string; readonly run: string },
): readonly string[] {
  const failed = outcomeNames.find((name) => summary.outcomes[name] > 0 && !outcomes[name].scored)
  const { agent, forkedFrom } = summary
  const first = forkedFrom ? `${forkedFrom.rollout.split('-')[0]}-0` : '0-0'
  const commands = summary.rollouts > 0 ? [`${program} show ${run} ${first}`, `${program} export ${run}`] : []
  if (failed) commands.unshift(`${program} show ${run} --outcome ${failed}`)
  const origin = forkedFrom && `from ${forkedFrom.run} ${forkedFrom.rollout}, after turn ${forkedFrom.turn}`
  return [
    ...notices(summary, `${program} show ${run}`).map((line) => `  ${style.warn('notice')}  ${line}`),
    ...(agent ? [`  ${style.dim('agent ')}  ${agentText(agent)}`] : []),
    ...(origin === undefined ? [] : [`  ${style.dim('forked')}  ${origin}`]),
    `  ${style.dim('folder')}  ${summary.folder}`,
    ...commands.map((command, index) => `  ${style.dim(index === 0 ? 'next  ' : '      ')}  ${style.accent(command)}`),
  ]
}

/** `refine turns=2`: its options as the command line has them. */
function agentText({ name, ...options }: NonNullable<ShownSummary['agent']>): string {
  const given = Object.entries(options).map(([option, value]) => {
    return `${option}=${typeof value === 'string' ? value : JSON.stringify(value)}`
  })
  return printableLine([name, ...given].join(' '))
}

function notices(summary: ShownSummary, show: string): readonly string[] {
  const { unreadable, missingTasks = 0, repeatedTaskIds, changedCode } = summary
  const lines: string[] = []
  const damaged = unreadable?.ids[0]
  if (unreadable && damaged !== undefined) {
    const isOne = unreadable.rollouts === 1
    const others = isOne ? '' : ` and ${formatQuantity(unreadable.rollouts - 1, 'other')}`
    lines.push(`${damaged}${others} cannot be read and ${isOne ? 'is' : 'are'} left out here; why:  ${show} ${damaged}`)
  }
  if (missingTasks > 0) {
    const gone = `${formatQuantity(missingTasks, 'task')} of this run ${missingTasks === 1 ? 'is' : 'are'} missing in its source`
    lines.push(`${gone}: restore the tasks to finish it, --new starts a run without them`)
  }
  const [repeated, ...others] = repeatedTaskIds
  if (repeated !== undefined) {
    const more = others.length === 0 ? '' : ', and other ids are not unique either'
    lines.push(
      `several tasks have the id ${printableLine(repeated)}${more}: remove duplicates, or give each task its own id with \`taskId\``,
    )
  }
  const mixed = mixedCodeNotice(changedCode)
  if (mixed !== undefined) lines.push(printableLine(mixed))
  return [...lines, ...missingServerLines(summary)]
}

/** The tool servers that were missing. Nothing else shows that rollouts had fewer tools than the environment names. */
function missingServerLines({ missingServers, rollouts }: ShownSummary): readonly string[] {
  const lines = missingServers.slice(0, shownServers).map(({ server, rollouts: without, cause }) => {
    const share = `${formatCount(without)} of ${formatQuantity(rollouts, 'rollout')}`
    const why = fitText(printableLine(cause), shownCauseChars)
    return `tool server ${printableLine(server)} was missing in ${share}: ${why}`
  })
  const more = missingServers.length - shownServers
  if (more > 0)
    lines.push(`${formatQuantity(more, 'more tool server')} ${more === 1 ? 'was' : 'were'} missing: see --json`)
  return lines
}

function rows(label: string, lines: readonly string[], { style }: Frame): readonly string[] {
  return lines.map((line, index) => labelled(index === 0 ? label : '', line, style))
}

function wrapped(label: string, text: string, frame: Frame): readonly string[] {
  return rows(label, wrapText(text, frame.room - labelColumns), frame)
}

function figures(cells: readonly string[]): string {
  return cells.map((cell) => padText(cell, cellColumns, 'right')).join('')
}

export function writeSummary(summary: ShownSummary, io: CommandIo): void {
  const { columns, style } = io.stdout
  const run = runReference(summary.folder, io)
  void io.stdout.write(summaryText(summary, { columns, style, program: io.program, run }))
}
