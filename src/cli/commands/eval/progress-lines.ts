import type { Progress } from '../../../eval/index.ts'
import type { ModelStatus } from '../../../inference/index.ts'
import type { WorkerStatus } from '../../../rollout/index.ts'
import { type Outcome, outcomeNames } from '../../../schema/index.ts'
import type { ToolServerStatus } from '../../../tools/index.ts'
import {
  formatBytes,
  formatCompactCount,
  formatCount,
  formatDuration,
  formatEstimate,
  formatMoney,
  formatQuantity,
  formatRate,
  formatShare,
  formatTimeLeft,
  workerName,
} from '../../terminal/format.ts'
import { bar, labelColumns, labelled } from '../../terminal/layout.ts'
import { fitText, inOutcomeColour, printableLine, type Style, textWidth } from '../../terminal/text.ts'

interface Frame {
  readonly columns: number
  readonly style: Style
}

const widestBar = 40
/** A lag above this is coloured: sockets wait that long. */
const lateMs = 50
/** With more models than this, all are summed up in one line. */
const shownModels = 4
const shownWorkers = 8
const shownServers = 4

/** A run in progress as the lines of the live view. Parts that do not fit are left out, least important first. */
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

export function startupLine(progress: Progress, { style }: Frame): string {
  const names = [progress.environment, progress.model].map(printableLine).filter((name) => name !== '')
  const what = names.length > 0 ? `${style.bold(names.join(' · '))} ` : ''
  return `${what}${style.dim(`${startupText(progress)}… ${formatDuration(progress.elapsedMs)} · Ctrl-C stops`)}`
}

export function progressLine(progress: Progress): string {
  const parts = [
    `${endedOf(progress)} rollouts`,
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
    parts.push(`${formatCount(parked)} waiting: backend overloaded or unreachable${found}`)
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

function worstLagMs({ lag, storeLag, workers }: Progress): number {
  return Math.max(lag.p99Ms, storeLag.p99Ms, ...workers.map((worker) => worker.lag.p99Ms))
}

function titleLine(progress: Progress, { style }: Frame): string {
  const what = `${printableLine(progress.environment)} · ${printableLine(progress.model)}`
  return `${style.bold(what)} ${style.dim(`· ${formatDuration(progress.elapsedMs)} · ${progress.run}`)}`
}

function barLine(progress: Progress, { columns, style }: Frame): string {
  const { total } = progress
  const parts = [
    ...(total ? [endedOf(progress), formatShare(progress.ended, total.count)] : [`${endedOf(progress)} ended`]),
    formatRate(progress.perSecond),
    `${formatCount(progress.active)} active`,
    ...timeLeft(progress),
  ]
  if (!total) return fitting(parts, columns - 1)
  const room = columns - 2 - textWidth(parts.join('  '))
  const { filled, rest } = bar(progress.ended / Math.max(1, total.count), Math.min(widestBar, Math.max(8, room - 1)))
  return fitting([`${style.good(filled)}${style.dim(rest)}`, ...parts], columns - 1)
}

/** `12/75`; `~` marks a total that is not known exactly. */
function endedOf({ ended, total }: Progress): string {
  return `${formatCount(ended)}${total ? `/${total.exact ? '' : '~'}${formatCount(total.count)}` : ''}`
}

function scoredOver(progress: Progress): string {
  const { score } = progress
  if (!score) return 'no rollout scored yet'
  return `${formatCount(score.rollouts)} of ${formatCount(progress.ended)} scored, ${formatQuantity(score.tasks, 'task')}`
}

function endedOutcomes(progress: Progress): readonly (readonly [Outcome, number])[] {
  return outcomeNames.flatMap((name) => {
    const count = progress.outcomes[name] ?? 0
    return count > 0 ? [[name, count] as const] : []
  })
}

function outcomeParts(progress: Progress, style: Style): readonly string[] {
  const parts = endedOutcomes(progress).map(([name, count]) =>
    inOutcomeColour(`${name} ${formatCount(count)}`, name, style),
  )
  return parts.length > 0 ? parts : ['none yet']
}

function tokenParts({ usage: { input, cachedInput, output }, cost }: Progress): readonly string[] {
  const cached = cachedInput > 0 ? ` (${formatShare(cachedInput, input)} cached)` : ''
  return [`${formatCompactCount(input)} in${cached}`, `${formatCompactCount(output)} out`, formatMoney(cost)]
}

function modelLines(models: readonly ModelStatus[], frame: Frame): readonly string[] {
  const lines = models.slice(0, shownModels).flatMap((model) => {
    const line = row(printableLine(model.name), frame, modelParts(model, frame.style))
    return [line].concat(reasonLines(model.parkedBecause, frame))
  })
  return [...lines, ...moreLines(models.length - shownModels, 'models', frame)]
}

function moreLines(count: number, what: string, frame: Frame): readonly string[] {
  return count > 0 ? [row('', frame, [`and ${count} more ${what}`])] : []
}

function modelParts(model: ModelStatus, style: Style): readonly string[] {
  const parts = [`${formatCount(model.inFlight)} of ${formatCount(model.limit)} in flight`]
  if (model.parked > 0)
    parts.push(style.warn(`${formatCount(model.parked)} waiting: backend overloaded or unreachable`))
  if (model.waiting > 0) parts.push(`${formatCount(model.waiting)} waiting for a limit`)
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
  const lines = workers
    .slice(0, shownWorkers)
    .map((worker) =>
      row(worker.id < 0 ? `suspect ${-worker.id}` : `worker ${worker.id}`, frame, workerParts(worker, frame.style)),
    )
  return [...lines, ...moreLines(workers.length - shownWorkers, 'workers', frame)]
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
    const where = parked > 0 ? `, ${formatCount(parked)} of them waiting for a backend` : ''
    return style.warn(`draining: ${formatCount(active)} still running${where} · Ctrl-C stops them`)
  }
  return state === 'stopping' ? style.warn('stopping') : undefined
}

function row(label: string, { columns, style }: Frame, parts: readonly string[]): string {
  return labelled(fitText(label, labelColumns - 1), fitting(parts, columns - 1 - labelColumns, ' · '), style)
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

/** What a run that has not started yet is busy with, judging by its progress. */
export function startupText(progress: Progress): string {
  const { environment, run, model, models, hasToolServers, ended, resumed } = progress
  if (environment === '') return 'loading the environment'
  if (run === '') return 'opening the run'
  // On this thread, models are open at once; a rollout thread has to load everything first.
  if (models.length === 0) return 'starting the rollout thread'
  if (ended > 0 && ended < resumed) return `reading earlier results: ${formatCount(ended)} of ${formatCount(resumed)}`
  // Outcomes are counted once the model has answered.
  if (Object.keys(progress.outcomes).length > 0) return 'asking the environment for its tasks'
  return `checking ${printableLine(model)} with one token${hasToolServers ? ' and opening the tool servers' : ''}`
}

const shortestWindowMs = 10_000
/** The window as a share of the elapsed time: long runs need a longer window, because their rollouts are longer too. */
const windowShare = 0.2
const samplesPerWindow = 20

interface Sample {
  readonly atMs: number
  readonly ended: number
}

/** How fast a run goes now: after a resume or a backend's standstill, the average since its start would mislead. */
export class RecentRate {
  readonly #samples: Sample[] = []
  #first: Sample | undefined

  apply(progress: Progress): Progress {
    const now: Sample = { atMs: progress.elapsedMs, ended: progress.ended }
    this.#first ??= now
    const windowMs = Math.max(shortestWindowMs, progress.elapsedMs * windowShare)
    const samples = this.#samples
    if (now.atMs - (samples.at(-1)?.atMs ?? -Infinity) >= windowMs / samplesPerWindow) samples.push(now)
    // The oldest sample that is kept is the one just outside the window.
    while ((samples[1]?.atMs ?? Infinity) <= now.atMs - windowMs) samples.shift()
    // If nothing ended lately, rollouts may just be long: then the average since the start is used.
    const perSecond = between(samples[0] ?? now, now) || between(this.#first, now)
    const left = progress.total && Math.max(0, progress.total.count - progress.ended)
    const etaMs = left !== undefined && perSecond > 0 ? (left / perSecond) * 1000 : undefined
    return { ...progress, perSecond, etaMs }
  }
}

function between(from: Sample, to: Sample): number {
  const ms = to.atMs - from.atMs
  return ms > 0 ? ((to.ended - from.ended) / ms) * 1000 : 0
}
