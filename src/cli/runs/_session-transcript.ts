import type { SessionView } from '../../gateway/index.ts'
import type { MessageNode } from '../../schema/index.ts'
import type { StoredReward } from '../../store/index.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import { formatMoney } from '../format/money.ts'
import { printableLine } from '../format/printable.ts'
import { formatScore } from '../format/score.ts'
import type { Style } from '../format/style.ts'
import { nodeLines, row } from './transcript.ts'

export interface SessionTranscript {
  readonly view: SessionView
  readonly nodes: readonly MessageNode[]
  readonly rewards: readonly StoredReward[]
}

/**
 * One session of a gateway to read, branch after branch; messages that branches share are shown once, with the first branch.
 */
export function* sessionLines(transcript: SessionTranscript, style: Style): Generator<string, void, void> {
  const { view, nodes } = transcript
  yield titleLine(view, style)
  const rewards = new Map(transcript.rewards.map(({ node, value }) => [node, value]))
  const parents = new Set(nodes.map(({ parent }) => parent))
  const branches = nodes.filter(({ seq }) => !parents.has(seq)).length
  let branch = 1
  let previous: number | null = null
  for (const node of byBranch(nodes)) {
    yield ''
    if (node.parent !== previous) {
      branch += 1
      const from = node.parent === null ? 'starts anew' : `goes on from #${node.parent}`
      yield style.warn(`── branch ${branch} of ${branches}, ${from} ──`)
    }
    yield* nodeLines(node, nameMark(node, rewards.get(node.seq), style), style)
    previous = node.seq
  }
  yield ''
  yield style.dim('─'.repeat(40))
  yield* totalLines(view, branches, style)
  const dropped = new Set(nodes.flatMap(({ call, discarded }) => (call ?? discarded)?.dropped ?? []))
  if (dropped.size > 0) yield row('left out', printableLine([...dropped].slice(0, maxDropped).join(', ')), style)
}

/** How many names of what was left out of requests are shown. */
const maxDropped = 32

/** The nodes depth first, siblings in the order of recording. Not recursive: a session may be 100,000 messages deep. */
function* byBranch(nodes: readonly MessageNode[]): Generator<MessageNode, void, void> {
  const children = Map.groupBy(nodes, ({ parent }) => parent)
  const waiting = (children.get(null) ?? []).toReversed()
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    yield node
    for (const child of (children.get(node.seq) ?? []).toReversed()) waiting.push(child)
  }
}

function titleLine({ id, taskId, state, reward }: SessionView, style: Style): string {
  const task = taskId === null ? '' : `task ${printableLine(taskId)} · `
  return `${style.bold(id)}  ${task}${state} · ${style.bold(rewardText(reward))}`
}

/** The message's number, and a reply's id, by which it is rewarded. */
function nameMark({ seq, call, discarded }: MessageNode, reward: number | undefined, style: Style): string {
  const replyId = call?.replyId ?? discarded?.replyId
  const name = replyId === undefined ? '' : ` ${printableLine(replyId)}`
  return style.dim(`  #${seq}${name}`) + (reward === undefined ? '' : style.bold(`  ${rewardText(reward)}`))
}

function* totalLines(view: SessionView, branches: number, style: Style): Generator<string, void, void> {
  const { groupId, tenant, state, interactions, tokens, discarded, used, reward, alarms } = view
  const lost = discarded === 0 ? '' : `, ${formatCount(discarded)} discarded`
  const shape = branches > 1 ? ` · ${formatCount(branches)} branches` : ''
  yield row('session', `${state} · group ${groupId} · tenant ${printableLine(tenant)}`, style)
  const untold = tokens === 'none' ? ' · no token ids' : tokens === 'some' ? ' · not all with token ids' : ''
  yield row('replies', `${formatQuantity(interactions, 'complete one')}${lost}${shape}${untold}`, style)
  yield row('tokens', `${formatCount(used.tokens)} sampled · ${formatMoney(used.cost)}`, style)
  yield row('reward', reward === null ? 'none for the session' : formatScore(reward), style)
  if (alarms.length > 0) yield row('alarms', style.bad(alarms.join(', ')), style)
}

function rewardText(reward: number | null): string {
  return reward === null ? 'no reward' : `reward ${formatScore(reward)}`
}
