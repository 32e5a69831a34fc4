import type { WireError } from '../../errors/index.ts'
import type {
  AssistantMessage,
  ContentPart,
  Json,
  Message,
  MessageNode,
  RolloutRecord,
  ToolRecord,
  ToolRepair,
  Usage,
} from '../../schema/index.ts'
import { isJsonObject, outcomes, type Outcome } from '../../schema/index.ts'
import { unlessDamaged, type StoredAttempt } from '../../store/index.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import { formatDuration } from '../format/duration.ts'
import { formatMoney } from '../format/money.ts'
import { printable, printableLine } from '../format/printable.ts'
import { formatScore } from '../format/score.ts'
import type { Style } from '../format/style.ts'
import { fitText, padText } from '../format/text-width.ts'

/** The most missing tool servers that are shown; `--json` has all of them. */
const shownServers = 5
/** The same for fields of the task's row, what judges said and what the environment noted, and how much of each. */
const shownRemarks = 10
const shownRemarkChars = 300

export interface Transcript {
  readonly rollout: string
  /** The rollout's result; undefined while it runs, and after it was cut off. */
  readonly record: Omit<RolloutRecord, 'messages'> | undefined
  /** What a rollout that has ended without a result waits for: the others of its group, or another scoring. */
  readonly waitsFor: 'group' | 'score' | undefined
  /** The row of the rollout's task; undefined if it has none, or the run does not keep it. */
  readonly taskRow: Json | undefined
  /** The messages of the attempt that is shown. */
  readonly nodes: readonly MessageNode[]
  readonly attempts: readonly StoredAttempt[]
  /** Why attempts were abandoned, by their numbers. */
  readonly givenUp: ReadonlyMap<number, string>
  readonly children: readonly StoredAttempt[]
  /** What judges said about the attempt that is shown, in order. */
  readonly verdicts: readonly Verdict[]
}

export interface Verdict {
  readonly model: string
  readonly said: string
}

/** What an ended attempt without a result waits for. A child gets no result of its own: its outcome goes to its parent. */
export function missingOf({ end, discarded, parent }: StoredAttempt): Transcript['waitsFor'] {
  if (!end || discarded || parent !== null) return undefined
  return outcomes[end.outcome].rule === 'rescore' ? 'score' : 'group'
}

/** One rollout to read: its messages and calls, its times, and its result. Yields line by line. */
export function* transcriptLines(transcript: Transcript, style: Style): Generator<string, void, void> {
  const { record, nodes, taskRow } = transcript
  yield titleLine(transcript, style)
  if (taskRow !== undefined)
    yield* remarkLines('task', fieldsOf(taskRow), ([name, value]) => [name, noteText(value)], style)
  let previous: number | null = null
  for (const node of nodes) {
    yield ''
    yield* nodeLines(node, branchMark(node, previous, style), style)
    previous = node.seq
  }
  yield ''
  yield style.dim('─'.repeat(40))
  if (transcript.waitsFor) yield row('waiting', style.warn(waiting[transcript.waitsFor]), style)
  if (record) yield* recordLines(record, style)
  else yield style.warn('not ended: it is running, or was cut off and can be continued')
  yield* remarkLines('judge', transcript.verdicts, ({ model, said }) => [model, said], style)
  yield* remarkLines('notes', Object.entries(record?.info ?? {}), ([name, value]) => [name, noteText(value)], style)
  yield* attemptLines(transcript, style)
}

/** One line for each of the first remarks: who or what it is, and the beginning of its text. */
function* remarkLines<Remark>(
  label: string,
  remarks: readonly Remark[],
  read: (remark: Remark) => readonly [name: string, text: string],
  style: Style,
): Generator<string, void, void> {
  for (const [index, remark] of remarks.slice(0, shownRemarks).entries()) {
    const [name, text] = read(remark).map(printableLine) as [string, string]
    yield row(index === 0 ? label : '', `${name}: ${fitText(text, shownRemarkChars)}`, style)
  }
  const more = remarks.length - shownRemarks
  if (more > 0) yield row('', style.dim(`and ${formatCount(more)} more: see --json`), style)
}

function fieldsOf(taskRow: Json): readonly (readonly [string, Json | undefined])[] {
  return isJsonObject(taskRow) ? Object.entries(taskRow) : [['row', taskRow]]
}

function noteText(value: Json | undefined): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? null)
}

/** One message: its speaker, how it came, and its content. */
export function* nodeLines(node: MessageNode, mark: string, style: Style): Generator<string, void, void> {
  const lost = node.discarded ? style.bad(`  discarded: ${node.discarded.why}`) : ''
  yield `${speaker(node, style)}${style.dim(howItCame(node))}${lost}${mark}`
  yield* messageLines(node.message, style)
}

const waiting = {
  group: 'it has ended and waits for the others of its group; its reward is what it got by itself',
  score: 'it has ended and waits to be scored again',
} as const

function titleLine({ rollout, record, waitsFor }: Transcript, style: Style): string {
  if (!record) return style.bold(rollout)
  const task = printableLine(record.task.id)
  const reward = record.reward === null ? 'no reward' : `reward ${formatScore(record.reward)}`
  const open = waitsFor ? ` · ${style.warn(`waits for its ${waitsFor}`)}` : ''
  return `${style.bold(rollout)}  task ${task} · ${outcomeText(record.outcome, style)} · ${style.bold(reward)}${open}`
}

const speakers: Readonly<Record<Message['role'], 'quiet' | 'accent' | 'good' | 'warn'>> = {
  system: 'quiet',
  developer: 'quiet',
  user: 'accent',
  assistant: 'good',
  tool: 'warn',
}

function speaker({ message, tool }: MessageNode, style: Style): string {
  const name = message.role === 'tool' && tool ? `tool ${printableLine(tool.name)}` : message.role
  return style.bold(style[speakers[message.role]](`▌ ${name}`))
}

function howItCame({ call, discarded, tool, tools }: MessageNode): string {
  const parts: string[] = []
  const sample = call ?? discarded
  if (sample) {
    const { ms, usage, waitMs, tries } = sample
    parts.push(formatDuration(ms), tokensText(usage))
    if (waitMs >= 1) parts.push(`waited ${formatDuration(waitMs)}`)
    if (tries > 1) parts.push(`${tries} tries`)
  }
  if (call?.finishReason === 'length' || call?.finishReason === 'content_filter') parts.push(call.finishReason)
  if (tool) parts.push(...toolParts(tool))
  for (const record of tools ?? []) parts.push([printableLine(record.name), ...toolParts(record)].join(' '))
  return parts.length > 0 ? `  ${parts.join(' · ')}` : ''
}

function tokensText({ input, output, estimated }: Usage): string {
  return `${formatCount(input)} in, ${formatCount(output)} out${estimated === undefined ? '' : ', estimated'}`
}

function toolParts({ status, ms, threw, repairs, detail }: ToolRecord): string[] {
  return [
    ...(status === 'ok' ? [] : [status]),
    ...(threw ? [`threw ${printableLine(threw.kind)}`] : []),
    formatDuration(ms),
    ...(repairs ?? []).map(repairText),
    ...(detail?.['sessionRestarted'] ? ['its server was restarted'] : []),
  ]
}

function repairText({ rule, at, applied }: ToolRepair): string {
  const what = at === undefined ? rule : `${rule} ${printableLine(at)}`
  return applied === false ? `to repair: ${what}` : `repaired: ${what}`
}

/** A mark for a message that does not follow the one above it: most conversations are linear, but some are trees. */
function branchMark(node: MessageNode, previous: number | null, style: Style): string {
  if (node.parent === previous) return ''
  return style.warn(node.parent === null ? '  starts anew' : `  goes on from message ${node.parent}`)
}

function* messageLines(message: Message, style: Style): Generator<string, void, void> {
  if (message.role === 'assistant') yield* assistantLines(message, style)
  else yield* contentLines(message.content)
}

function* assistantLines(message: AssistantMessage, style: Style): Generator<string, void, void> {
  if (message.reasoning_content) yield* textLines(message.reasoning_content, style.dim)
  if (message.content) yield* textLines(message.content)
  if (message.refusal) yield* textLines(`refused: ${message.refusal}`, style.bad)
  for (const call of message.tool_calls ?? []) {
    yield style.accent(`→ ${printableLine(call.function.name)}`) + printable(` ${call.function.arguments}`)
  }
}

function* contentLines(content: string | readonly ContentPart[]): Generator<string, void, void> {
  if (typeof content === 'string') {
    yield* textLines(content)
    return
  }
  for (const part of content) {
    if (part.type === 'text') yield* textLines(part.text)
    else if (part.type === 'image_url') yield `[image ${printableLine(part.image_url.url).slice(0, 60)}]`
    else yield `[${printableLine(JSON.stringify(part.value)).slice(0, 60)}]`
  }
}

function* textLines(text: string, as: (line: string) => string = (line) => line): Generator<string, void, void> {
  for (const line of printable(text).split('\n')) yield as(line)
}

function* recordLines(record: Omit<RolloutRecord, 'messages'>, style: Style): Generator<string, void, void> {
  const { timing } = record
  const tools = record.toolCalls > 0 ? ` · ${formatQuantity(record.toolCalls, 'tool call')}` : ''
  const errors = record.toolErrors > 0 ? `, ${formatCount(record.toolErrors)} failed` : ''
  const repairs = record.toolRepairs ? `, ${formatQuantity(record.toolRepairs, 'repair')}` : ''
  const after = record.agentOutcome ? ` after ${outcomeText(record.agentOutcome, style)}` : ''
  yield row(
    'outcome',
    `${outcomeText(record.outcome, style)}${after} · ${formatQuantity(record.turns, 'turn')}${tools}${errors}${repairs}`,
    style,
  )
  if (record.error) yield* errorRows(record.error, style)
  if (record.cutOffIn !== undefined) yield row('cut off', style.warn(`in ${printableLine(record.cutOffIn)}`), style)
  for (const { server, cause } of (record.missingServers ?? []).slice(0, shownServers)) {
    yield row('missing', style.warn(`tool server ${printableLine(server)}: ${printableLine(cause)}`), style)
  }
  yield row('reward', rewardText(record), style)
  const metrics = Object.entries(record.metrics)
  if (metrics.length > 0) {
    yield row(
      'metrics',
      metrics.map(([name, value]) => `${printableLine(name)} ${formatScore(value)}`).join(' · '),
      style,
    )
  }
  yield row(
    'time',
    `wall ${formatDuration(timing.wallMs)} · model ${formatDuration(timing.modelMs)} · tools ${formatDuration(timing.toolMs)} · ` +
      `reward ${formatDuration(timing.rewardMs)} · wait ${formatDuration(timing.waitMs)}`,
    style,
  )
  yield row('tokens', `${tokensText(record.usage)} · ${formatMoney(record.cost)}`, style)
}

/** A traceback is read line by line. */
function* errorRows({ message, code }: WireError, style: Style): Generator<string, void, void> {
  const lines = `${printable(message).trimEnd()} [${code}]`.split('\n')
  for (const [index, line] of lines.entries()) yield row(index === 0 ? 'error' : '', style.bad(line), style)
}

function rewardText(record: Omit<RolloutRecord, 'messages'>): string {
  const components = Object.entries(record.rewards).map(([name, { score, weight }]) =>
    weight === 0
      ? `${printableLine(name)} ${formatScore(score)} (metric)`
      : `${printableLine(name)} ${formatScore(score)} × ${weight}`,
  )
  const value = record.reward === null ? (record.voided ? 'voided with its group' : 'none') : formatScore(record.reward)
  return components.length > 0 ? `${value} = ${components.join(', ')}` : value
}

function* attemptLines(
  { attempts, givenUp, children, record }: Transcript,
  style: Style,
): Generator<string, void, void> {
  if (attempts.length > 1 || givenUp.size > 0) {
    for (const [index, attempt] of attempts.entries()) {
      // The end of the attempt that counts is kept with the rollout.
      const ended = record?.attempt === attempt.attempt ? record : unlessDamaged(() => attempt.end?.record)
      const { attempt: number, discarded } = attempt
      const text = attemptText({ ended, discarded, why: givenUp.get(number), name: String(number) }, style)
      yield row(index === 0 ? 'attempts' : '', text, style)
    }
  }
  for (const [index, child] of children.entries()) {
    const { end, discarded, rollout: name } = child
    yield row(index === 0 ? 'children' : '', attemptText({ ended: end?.record, discarded, name }, style), style)
  }
}

function attemptText(
  attempt: {
    readonly ended: Omit<RolloutRecord, 'messages'> | undefined
    readonly discarded: boolean
    readonly why?: string | undefined
    readonly name: string
  },
  style: Style,
): string {
  const { ended, discarded, why, name } = attempt
  if (why !== undefined) return `${name} ${style.warn('given up')}: ${printableLine(why)}`
  const takenBack = style.dim('taken back to run again')
  if (!ended) return `${name} ${discarded ? takenBack : 'not ended'}`
  const error = ended.error ? `: ${printableLine(ended.error.message)}` : ''
  return `${name} ${outcomeText(ended.outcome, style)}${error}${discarded ? ` (${takenBack})` : ''}`
}

function outcomeText(outcome: Outcome, style: Style): string {
  const { scored, truncated } = outcomes[outcome]
  if (!scored) return style.bad(outcome)
  return truncated ? style.warn(outcome) : style.good(outcome)
}

export function row(label: string, text: string, style: Style): string {
  return `${style.dim(padText(label, 10))}${text}`
}
