import type { WireError } from '../../../errors/index.ts'
import {
  type AssistantMessage,
  type ContentPart,
  isJsonObject,
  type Json,
  type Message,
  type MessageNode,
  outcomes,
  type RolloutRecord,
  type ToolRecord,
  type ToolRepair,
  type Usage,
} from '../../../schema/index.ts'
import { unlessDamaged, type StoredAttempt } from '../../../store/index.ts'
import { formatCount, formatDuration, formatMoney, formatQuantity, formatScore } from '../../terminal/format.ts'
import { labelled } from '../../terminal/layout.ts'
import { type ChildBranch, branchLines, ChildPlaces, childText, turnTexts } from './child-tree.ts'
import { fitText, inOutcomeColour, printable, printableLine, type Style } from '../../terminal/text.ts'

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
  readonly nodes: readonly MessageNode[]
  readonly attempts: readonly StoredAttempt[]
  readonly givenUp: ReadonlyMap<number, string>
  readonly children: readonly ChildBranch[]
  /** What judges said about the attempt that is shown, in order. */
  readonly verdicts: readonly { readonly model: string; readonly said: string }[]
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
  const task = isJsonObject(taskRow) ? taskRow : { ...(taskRow !== undefined && { row: taskRow }) }
  yield* remarkLines('task', Object.entries(task), style)
  const places = new ChildPlaces(transcript.rollout, transcript.children)
  let previous: number | null = null
  for (const node of nodes) {
    if (node.message.role === 'assistant') yield* branchLines(places.beforeReply(), style)
    places.enter(node)
    yield ''
    yield* nodeLines(node, branchMark(node, previous, style), style, places)
    previous = node.seq
  }
  yield ''
  yield style.dim('─'.repeat(40))
  if (transcript.waitsFor) yield labelled('waiting', style.warn(waiting[transcript.waitsFor]), style)
  if (record) yield* recordLines(record, style)
  else yield style.warn('not ended: it is running, or was cut off and can be continued')
  const verdicts = transcript.verdicts.map(({ model, said }) => [model, said] as const)
  yield* remarkLines('judge', verdicts, style)
  yield* remarkLines('notes', Object.entries(record?.info ?? {}), style)
  yield* attemptLines(transcript, style)
  for (const [index, { child }] of places.rest().entries()) {
    yield labelled(index === 0 ? 'children' : '', childText(child, style), style)
  }
}

function* remarkLines(
  label: string,
  remarks: readonly (readonly [name: string, value: Json | undefined])[],
  style: Style,
): Generator<string, void, void> {
  for (const [index, [name, value]] of remarks.slice(0, shownRemarks).entries()) {
    const text = fitText(
      printableLine(typeof value === 'string' ? value : JSON.stringify(value ?? null)),
      shownRemarkChars,
    )
    yield labelled(index === 0 ? label : '', `${printableLine(name)}: ${text}`, style)
  }
  const more = remarks.length - shownRemarks
  if (more > 0) yield labelled('', style.dim(`and ${formatCount(more)} more: see --json`), style)
}

export function* nodeLines(
  node: MessageNode,
  mark: string,
  style: Style,
  places?: ChildPlaces,
): Generator<string, void, void> {
  const lost = node.discarded ? style.bad(`  discarded: ${node.discarded.why}`) : ''
  yield `${speaker(node, style)}${style.dim(howItCame(node))}${lost}${mark}`
  if (node.message.role === 'assistant') yield* assistantLines(node.message, style, places)
  else yield* contentLines(node.message.content)
}

const waiting = {
  group: 'it has ended and waits for the rest of its group; its reward is without the group reward',
  score: 'it has ended and waits to be scored again',
} as const

function titleLine({ rollout, record, waitsFor }: Transcript, style: Style): string {
  if (!record) return style.bold(rollout)
  const task = printableLine(record.task.id)
  const reward = record.reward === null ? 'no reward' : `reward ${formatScore(record.reward)}`
  const open = waitsFor ? ` · ${style.warn(`waits for its ${waitsFor}`)}` : ''
  return `${style.bold(rollout)}  task ${task} · ${inOutcomeColour(record.outcome, record.outcome, style)} · ${style.bold(reward)}${open}`
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
    const { driftedTokens = 0 } = usage
    parts.push(formatDuration(ms), tokensText(usage))
    if (waitMs >= 1) parts.push(`waited ${formatDuration(waitMs)}`)
    if (tries > 1) parts.push(`${tries} tries`)
    if (driftedTokens > 0) parts.push(`${formatQuantity(driftedTokens, 'earlier token')} drifted`)
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
  return style.warn(node.parent === null ? '  new conversation' : `  continues from message ${node.parent}`)
}

function* assistantLines(
  message: AssistantMessage,
  style: Style,
  places: ChildPlaces | undefined,
): Generator<string, void, void> {
  if (message.reasoning_content) yield* textLines(message.reasoning_content, style.dim)
  if (message.content) yield* textLines(message.content)
  if (message.refusal) yield* textLines(`refused: ${message.refusal}`, style.bad)
  for (const call of message.tool_calls ?? []) {
    yield style.accent(`→ ${printableLine(call.function.name)}`) + printable(` ${call.function.arguments}`)
    if (places) yield* branchLines(places.ofNextCall(), style)
  }
  if (places) yield* branchLines(places.ofTextCalls(message), style)
}

function* contentLines(content: string | readonly ContentPart[]): Generator<string, void, void> {
  for (const part of typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content) {
    if (part.type === 'text') yield* textLines(part.text)
    else if (part.type === 'image_url') yield `[image ${printableLine(part.image_url.url).slice(0, 60)}]`
    else yield `[${printableLine(JSON.stringify(part.value)).slice(0, 60)}]`
  }
}

function* textLines(text: string, as: (line: string) => string = (line) => line): Generator<string, void, void> {
  for (const line of printable(text).split('\n')) yield as(line)
}

/** How the agent had ended, if the reward failed. */
function agentEnd({ agentOutcome }: Pick<RolloutRecord, 'agentOutcome'>, style: Style): string {
  if (agentOutcome === undefined) return ''
  return agentOutcome === 'reward_error'
    ? ' before the agent had ended'
    : ` after ${inOutcomeColour(agentOutcome, agentOutcome, style)}`
}

function* recordLines(record: Omit<RolloutRecord, 'messages'>, style: Style): Generator<string, void, void> {
  const calls = record.toolCalls > 0 ? ` · ${formatQuantity(record.toolCalls, 'tool call')}` : ''
  const errors = record.toolErrors > 0 ? `, ${formatCount(record.toolErrors)} failed` : ''
  const repairs = record.toolRepairs ? `, ${formatQuantity(record.toolRepairs, 'repair')}` : ''
  const outcome = `${inOutcomeColour(record.outcome, record.outcome, style)}${agentEnd(record, style)}`
  const children =
    record.children > 0 ? ` · ${formatCount(record.children)} ${record.children === 1 ? 'child' : 'children'}` : ''
  const turns = turnTexts(record).join(' · ')
  yield labelled('outcome', `${outcome} · ${turns}${calls}${errors}${repairs}${children}`, style)
  if (record.error) yield* errorRows(record.error, style)
  if (record.cutOffIn !== undefined)
    yield labelled('cut off', style.warn(`in ${printableLine(record.cutOffIn)}`), style)
  for (const { server, cause } of (record.missingServers ?? []).slice(0, shownServers)) {
    yield labelled('missing', style.warn(`tool server ${printableLine(server)}: ${printableLine(cause)}`), style)
  }
  yield labelled('reward', rewardText(record), style)
  const metrics = Object.entries(record.metrics).map(([name, value]) => `${printableLine(name)} ${formatScore(value)}`)
  if (metrics.length > 0) yield labelled('metrics', metrics.join(' · '), style)
  const { wallMs: wall, modelMs: model, toolMs: tools, rewardMs: reward, waitMs: wait } = record.timing
  const times = Object.entries({ wall, model, tools, reward, wait }).map(
    ([name, ms]) => `${name} ${formatDuration(ms)}`,
  )
  yield labelled('time', times.join(' · '), style)
  yield labelled('tokens', `${tokensText(record.usage)} · ${formatMoney(record.cost)}`, style)
}

/** A traceback is read line by line. */
function* errorRows({ message, code }: WireError, style: Style): Generator<string, void, void> {
  const lines = `${printable(message).trimEnd()} [${code}]`.split('\n')
  for (const [index, line] of lines.entries()) yield labelled(index === 0 ? 'error' : '', style.bad(line), style)
}

function rewardText(record: Omit<RolloutRecord, 'messages'>): string {
  const components = Object.entries(record.rewards).map(
    ([name, { score, weight }]) =>
      `${printableLine(name)} ${formatScore(score)} ${weight === 0 ? '(metric)' : `× ${weight}`}`,
  )
  const why = record.voided ? 'voided with its group' : record.unscored ? 'none, as requested' : 'none'
  const value = record.reward === null ? why : formatScore(record.reward)
  return components.length > 0 ? `${value} = ${components.join(', ')}` : value
}

function* attemptLines({ attempts, givenUp, record }: Transcript, style: Style): Generator<string, void, void> {
  if (attempts.length > 1 || givenUp.size > 0) {
    for (const [index, attempt] of attempts.entries()) {
      // The end of the attempt that counts is kept with the rollout.
      const ended = record?.attempt === attempt.attempt ? record : unlessDamaged(() => attempt.end?.record)
      const { attempt: number, discarded } = attempt
      const text = attemptText({ ended, discarded, why: givenUp.get(number), name: String(number) }, style)
      yield labelled(index === 0 ? 'attempts' : '', text, style)
    }
  }
}

interface ShownAttempt {
  readonly name: string
  readonly ended: Omit<RolloutRecord, 'messages'> | undefined
  readonly discarded: boolean
  readonly why?: string | undefined
}

function attemptText({ name, ended, discarded, why }: ShownAttempt, style: Style): string {
  if (why !== undefined) return `${name} ${style.warn('aborted')}: ${printableLine(why)}`
  const takenBack = style.dim('discarded to run again')
  if (!ended) return `${name} ${discarded ? takenBack : 'not ended'}`
  const error = ended.error ? `: ${printableLine(ended.error.message)}` : ''
  return `${name} ${inOutcomeColour(ended.outcome, ended.outcome, style)}${error}${discarded ? ` (${takenBack})` : ''}`
}
