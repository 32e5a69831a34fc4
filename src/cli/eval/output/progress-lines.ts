import type { Progress } from '../../../eval/index.ts'
import type { ModelStatus } from '../../../inference/index.ts'
import type { WorkerStatus } from '../../../rollout/index.ts'
import { outcomeNames, outcomes } from '../../../schema/index.ts'
import type { ToolServerStatus } from '../../../tools/index.ts'
import { bar } from '../../format/bar.ts'
import { formatBytes } from '../../format/bytes.ts'
import { formatCompactCount, formatCount, formatShare, formatQuantity } from '../../format/count.ts'
import { formatDuration, formatTimeLeft } from '../../format/duration.ts'
import { formatMoney } from '../../format/money.ts'
import { printableLine } from '../../format/printable.ts'
import { formatRate } from '../../format/rate.ts'
import { formatEstimate } from '../../format/score.ts'
import type { Style } from '../../format/style.ts'
import { fitText, padText, textWidth } from '../../format/text-width.ts'
import { workerName } from '../../format/worker-name.ts'
import { startupText } from './startup-text.ts'

interface Frame {
  readonly columns: number
  readonly style: Style
}

const labelColumns = 10
const widestBar = 40
/** A lag above this is coloured: sockets wait that long. */
const lateMs = 50
/** With more models than this, all are summed up in one line. */
const shownModels = 4
const shownWorkers = 8
const shownServers = 4

/**
 * A run in progress as the lines of the live view. Parts that do not fit a narrow terminal are left out, least important
 * first.
 */
export function progressLines(progress: Progress, frame: Frame): readonly string[] {
  const { style } = frame
  const lines = [
    titleLine(progress, frame),
    barLine(progress, frame),
    row('reward', frame, [style.bold(formatEstimate(progress.score)), scoredOver(progress)]),
    row('outcomes', frame, outcomeParts(progress, style)),
    row('tokens', frame, tokenParts(progress)),
    ...modelLines(progress.models, frame),
    ...awayLines(progress.servers, frame),
    row('loop', frame, lagParts(progress.lag, style)),
    row('store', frame, lagParts(progress.storeLag, style)),
    ...workerLines(progress.workers, frame),
  ]
  const hint = stateHint(progress, style)
  return hint === undefined ? lines : [...lines, hint]
}

/** The line for a run that has not started yet. */
export function startupLine(progress: Progress, { style }: Frame): string {
  const names = [progress.environment, progress.model].map(printableLine).filter((name) => name !== '')
  const what = names.length > 0 ? `${style.bold(names.join(' · '))} ` : ''
  return `${what}${style.dim(`${startupText(progress)}… ${formatDuration(progress.elapsedMs)} · Ctrl-C stops`)}`
}

/** A run in progress as one line of plain text. */
export function progressLine(progress: Progress): string {
  const { total } = progress
  const parts = [
    `${formatCount(progress.ended)}${total ? `/${total.exact ? '' : '~'}${formatCount(total.count)}` : ''} rollouts`,
    formatRate(progress.perSecond),
    `${formatCount(progress.active)} active`,
    `reward ${formatEstimate(progress.score)}`,
    ...endedOutcomes(progress).map(([name, count]) => `${name} ${formatCount(count)}`),
    `${formatCompactCount(progress.usage.input)}+${formatCompactCount(progress.usage.output)} tokens`,
    formatMoney(progress.cost),
    `lag p99 ${formatDuration(worstLagMs(progress))}`,
  ]
  const parked = parkedCount(progress.models)
  if (parked > 0) {
    const reason = progress.models.find(({ parkedBecause }) => parkedBecause !== undefined)?.parkedBecause
    const found = reason === undefined ? '' : ` (${printableLine(reason)})`
    parts.push(`${formatCount(parked)} parked: the backend is overloaded or gone${found}`)
  }
  for (const server of awayServers(progress.servers)) {
    const reason = server.awayBecause === undefined ? '' : ` (${printableLine(server.awayBecause)})`
    parts.push(`${awayText(server)}${reason}`)
  }
  for (const { id, state, blockedBy } of progress.workers) {
    if (state === 'silent')
      parts.push(`${workerName(id)} is blocked${blockedBy === undefined ? '' : ` by ${printableLine(blockedBy)}`}`)
  }
  parts.push(...timeLeft(progress))
  if (progress.state !== 'running') parts.push(progress.state)
  return `[${formatDuration(progress.elapsedMs)}] ${parts.join('  ')}`
}

/** The time left of the whole run. Once it drains that does not apply; while a backend or tool server is gone nobody knows it. */
function timeLeft({ etaMs, state, models, servers }: Progress): string[] {
  if (etaMs === undefined || state !== 'running' || parkedCount(models) + awayServers(servers).length > 0) return []
  return [`${formatTimeLeft(etaMs)} left`]
}

/** The worst lag of all event loops that rollouts depend on. */
function worstLagMs({ lag, storeLag, workers }: Progress): number {
  return Math.max(lag.p99Ms, storeLag.p99Ms, ...workers.map((worker) => worker.lag.p99Ms))
}

function titleLine(progress: Progress, { style }: Frame): string {
  const what = `${printableLine(progress.environment)} · ${printableLine(progress.model)}`
  return `${style.bold(what)} ${style.dim(`· ${formatDuration(progress.elapsedMs)} · ${progress.run}`)}`
}

function barLine(progress: Progress, { columns, style }: Frame): string {
  const { total } = progress
  const count = total
    ? `${formatCount(progress.ended)}/${total.exact ? '' : '~'}${formatCount(total.count)}`
    : `${formatCount(progress.ended)} ended`
  const parts = [count]
  if (total) parts.push(formatShare(progress.ended, total.count))
  parts.push(formatRate(progress.perSecond), `${formatCount(progress.active)} active`)
  parts.push(...timeLeft(progress))
  if (!total) return fitting(parts, columns - 1)
  const room = columns - 2 - textWidth(parts.join('  '))
  const { filled, rest } = bar(progress.ended / Math.max(1, total.count), Math.min(widestBar, Math.max(8, room - 1)))
  return fitting([`${style.good(filled)}${style.dim(rest)}`, ...parts], columns - 1)
}

function scoredOver(progress: Progress): string {
  const { score } = progress
  if (!score) return 'no rollout scored yet'
  return `${formatCount(score.rollouts)} of ${formatCount(progress.ended)} scored, ${formatQuantity(score.tasks, 'task')}`
}

function endedOutcomes(progress: Progress): readonly (readonly [string, number])[] {
  return outcomeNames.flatMap((name) => {
    const count = progress.outcomes[name] ?? 0
    return count > 0 ? [[name, count] as const] : []
  })
}

function outcomeParts(progress: Progress, style: Style): readonly string[] {
  const parts = endedOutcomes(progress).map(([name, count]) => {
    const { scored, truncated } = outcomes[name as keyof typeof outcomes]
    const text = `${name} ${formatCount(count)}`
    return !scored ? style.bad(text) : truncated ? style.warn(text) : style.good(text)
  })
  return parts.length > 0 ? parts : ['none yet']
}

function tokenParts({ usage, cost }: Progress): readonly string[] {
  const cached = usage.cachedInput > 0 ? ` (${formatShare(usage.cachedInput, usage.input)} cached)` : ''
  return [
    `${formatCompactCount(usage.input)} in${cached}`,
    `${formatCompactCount(usage.output)} out`,
    formatMoney(cost),
  ]
}

function modelLines(models: readonly ModelStatus[], frame: Frame): readonly string[] {
  const shown = models.slice(0, shownModels)
  const lines = shown.flatMap((model) => [
    row(printableLine(model.name), frame, modelParts(model, frame.style)),
    ...reasonLines(model.parkedBecause, frame),
  ])
  const more = models.length - shown.length
  return more > 0 ? [...lines, row('', frame, [`and ${more} more models`])] : lines
}

function modelParts(model: ModelStatus, style: Style): readonly string[] {
  const parts = [`${formatCount(model.inFlight)} of ${formatCount(model.limit)} in flight`]
  if (model.parked > 0) parts.push(style.warn(`${formatCount(model.parked)} parked: the backend is overloaded or gone`))
  if (model.waiting > 0) parts.push(`${formatCount(model.waiting)} waiting`)
  parts.push(`${formatCompactCount(model.calls)} calls`)
  if (model.tries > model.calls) parts.push(`${formatCompactCount(model.tries)} tries`)
  return parts
}

/** The reason for a wait, on a line below what is waited for, where there is room for it. */
function reasonLines(because: string | undefined, frame: Frame): readonly string[] {
  if (because === undefined) return []
  const reason = fitText(printableLine(because), frame.columns - 1 - labelColumns)
  return [row('', frame, [frame.style.warn(reason)])]
}

function awayServers(servers: readonly ToolServerStatus[]): readonly ToolServerStatus[] {
  return servers.filter(({ state }) => state === 'away')
}

function awayText({ server, waiting, awayMs }: ToolServerStatus): string {
  const name = printableLine(server)
  return `${formatQuantity(waiting, 'rollout')} ${waiting === 1 ? 'waits' : 'wait'} for tool server "${name}", away for ${formatDuration(awayMs)}`
}

/** The tool servers that rollouts wait for, each with the reason below. */
function awayLines(servers: readonly ToolServerStatus[], frame: Frame): readonly string[] {
  return awayServers(servers)
    .slice(0, shownServers)
    .flatMap((server) => {
      const line = row('tools', frame, [frame.style.warn(awayText(server))])
      return [line].concat(reasonLines(server.awayBecause, frame))
    })
}

export function parkedCount(models: readonly ModelStatus[]): number {
  return models.reduce((sum, { parked }) => sum + parked, 0)
}

function workerLines(workers: readonly WorkerStatus[], frame: Frame): readonly string[] {
  const shown = workers.slice(0, shownWorkers)
  const lines = shown.map((worker) =>
    row(worker.id < 0 ? `suspect ${-worker.id}` : `worker ${worker.id}`, frame, workerParts(worker, frame.style)),
  )
  const more = workers.length - shown.length
  return more > 0 ? [...lines, row('', frame, [`and ${more} more workers`])] : lines
}

function workerParts({ state, blockedBy, running, lag, memoryBytes, restarts }: WorkerStatus, style: Style): string[] {
  const parts: string[] = []
  if (state !== 'ready')
    parts.push(style.warn(blockedBy === undefined ? state : `${state} in ${printableLine(blockedBy)}`))
  parts.push(`${formatCount(running)} running`, ...lagParts(lag, style), formatBytes(memoryBytes))
  if (restarts > 0) parts.push(style.warn(`replaced ${formatCount(restarts)} times`))
  return parts
}

function lagParts(lag: Progress['lag'], style: Style): readonly string[] {
  const tinted = (ms: number): string => (ms > lateMs ? style.warn(formatDuration(ms)) : formatDuration(ms))
  return [`lag p99 ${tinted(lag.p99Ms)}`, `max ${tinted(lag.maxMs)}`, `${Math.round(100 * lag.utilization)}% busy`]
}

function stateHint({ state, active, models }: Progress, style: Style): string | undefined {
  if (state === 'running') return style.dim('Ctrl-C drains, twice stops')
  if (state === 'draining') {
    const parked = parkedCount(models)
    const where = parked > 0 ? `, ${formatCount(parked)} of them parked` : ''
    return style.warn(`draining: ${formatCount(active)} still running${where} · Ctrl-C stops them`)
  }
  return state === 'stopping' ? style.warn('stopping') : undefined
}

/** A label and as many of the parts as fit beside it. */
function row(label: string, { columns, style }: Frame, parts: readonly string[]): string {
  const shown = label === '' || textWidth(label) < labelColumns ? label : `${label.slice(0, labelColumns - 2)}…`
  return `${style.dim(padText(shown, labelColumns))}${fitting(parts, columns - 1 - labelColumns, ' · ')}`
}

function fitting(parts: readonly string[], columns: number, separator = '  '): string {
  let line = ''
  for (const part of parts) {
    const longer = line === '' ? part : `${line}${separator}${part}`
    if (line !== '' && textWidth(longer) > columns) return line
    line = longer
  }
  return line
}
