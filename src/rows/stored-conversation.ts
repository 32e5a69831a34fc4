import { type MessageNode, type Outcome, outcomes, type RewardComponent, taskOf } from '../schema/index.ts'
import {
  type EndedAttempt,
  type NodeWithoutTokens,
  type RunReader,
  type SessionReader,
  type StoredReward,
  type StoredRollout,
  type StoredSession,
  unlessDamaged,
} from '../store/index.ts'
import { type AdvantageRule, GroupScores } from './advantage.ts'

/** Facts about a conversation that every row repeats, so that each row can be read alone. */
export interface ConversationFacts {
  /** The session of a gateway, or the rollout. */
  readonly session: string
  /** The rollout that started it, if it is a child. */
  readonly parent: string | null
  readonly group: string
  readonly tenant: string | null
  readonly task: string | null
  /** Which sample of its group it is; null for a session. */
  readonly sample: number | null
  readonly sealed: boolean
  /** A session has none until it ends. */
  readonly outcome: Outcome | 'expired' | null
  readonly truncated: boolean
  readonly rewards: Readonly<Record<string, RewardComponent>>
  readonly advantage: number | null
}

/** A conversation in the store: a session of a gateway, a rollout, or a child of one. Messages are read when asked for. */
export interface StoredConversation {
  readonly id: string
  /** Decoded on access, which throws if they are damaged. */
  readonly facts: ConversationFacts
  /** The facts that can be read even if the others are damaged. */
  readonly plainFacts: ConversationFacts
  /** Whether its tokens may be trained: not those of a rollout whose outcome is not scored. */
  readonly isTrained: boolean
  /** The message that it ended with, if that is known. */
  readonly end: number | null
  readonly rewards: readonly StoredReward[]
  readonly firstWithoutTokens: () => number | undefined
  readonly bareNodes: () => Iterable<NodeWithoutTokens>
  readonly nodes: () => Iterable<MessageNode>
}

export interface ConversationQuery {
  readonly session?: string
  readonly group?: string
  readonly tenant?: string
  readonly advantage: AdvantageRule
}

/** The conversations of a run, members of a group in the order in which they began. */
export function* storedConversations(
  reader: RunReader,
  query: ConversationQuery,
): Generator<StoredConversation, void, void> {
  yield* sessionConversations(reader.sessions, query)
  if (query.tenant === undefined) yield* rolloutConversations(reader, query)
}

function* sessionConversations(
  reader: SessionReader,
  { session, group, tenant, advantage }: ConversationQuery,
): Generator<StoredConversation, void, void> {
  const ofTenant = tenant !== undefined && { tenant }
  const chosen =
    session === undefined
      ? reader.each({ ...ofTenant, ...(group !== undefined && { group }) })
      : [reader.session(session)].filter((found) => found && (tenant === undefined || found.tenant === tenant))
  const groups = new Map<string, GroupScores>()
  const advantageOf = (found: StoredSession): number | null => {
    // Rewards are read only if somebody asks for advantages.
    if (advantage === 'none') return null
    const key = JSON.stringify([found.tenant, found.group])
    let scores = groups.get(key)
    if (!scores) {
      const members = reader.each({ tenant: found.tenant, group: found.group })
      const known = Array.from(members, ({ id }) => scoreOf(unlessDamaged(() => reader.rewardsOf(id)) ?? []))
      scores = new GroupScores(advantage, known)
      groups.set(key, scores)
    }
    return scores.advantage(scoreOf(reader.rewardsOf(found.id)))
  }
  for (const found of chosen) if (found) yield sessionConversation(reader, found, advantageOf)
}

function sessionConversation(
  reader: SessionReader,
  session: StoredSession,
  advantageOf: (session: StoredSession) => number | null,
): StoredConversation {
  const { id, group, tenant, end } = session
  const plainFacts: ConversationFacts = {
    session: id,
    parent: null,
    group,
    tenant,
    task: null,
    sample: null,
    sealed: end !== undefined,
    outcome: end ? (end.why === 'ended' ? 'completed' : end.why) : null,
    truncated: false,
    rewards: {},
    advantage: null,
  }
  return {
    id,
    plainFacts,
    get facts() {
      const task = session.data['taskId']
      return { ...plainFacts, ...(typeof task === 'string' && { task }), advantage: advantageOf(session) }
    },
    isTrained: true,
    end: null,
    get rewards() {
      return reader.rewardsOf(id)
    },
    firstWithoutTokens: () => reader.firstWithoutTokens(id),
    bareNodes: () => reader.bareNodesOf(id),
    nodes: () => reader.nodesOf(id),
  }
}

/** What a session was given in all; null if it was given nothing. */
function scoreOf(rewards: readonly StoredReward[]): number | null {
  return rewards.length === 0 ? null : rewards.reduce((sum, { value }) => sum + value, 0)
}

function* rolloutConversations(
  reader: RunReader,
  { session, group, advantage }: ConversationQuery,
): Generator<StoredConversation, void, void> {
  const named = session === undefined ? group : String(taskOf(session))
  const tasks = named === undefined ? reader.tasks() : [reader.task(Number(named))].filter((task) => task !== undefined)
  for (const task of tasks) {
    if (group !== undefined && group !== groupOf(task.index)) continue
    for (const found of groupConversations(reader, task, advantage)) {
      if (session === undefined || found.id === session) yield found
    }
  }
}

interface TaskName {
  readonly index: number
  readonly id: string | null
}

/** The rollouts of one task that have ended, each with its children after it. */
export function* groupConversations(
  reader: RunReader,
  task: TaskName,
  advantage: AdvantageRule,
): Generator<StoredConversation, void, void> {
  const results = reader.rolloutsOf(task.index).flatMap((id) => reader.result(id) ?? [])
  const trained = new Map(results.map((result) => [result, isTrained(result)]))
  const scoreIn = (result: StoredRollout): number | null => (trained.get(result) ? result.reward : null)
  const scores = new GroupScores(advantage, results.map(scoreIn))
  for (const result of results) {
    const { rollout, attempt } = result
    yield rolloutConversation(reader, result, {
      task,
      parent: null,
      isTrained: trained.get(result) === true,
      advantage: scores.advantage(scoreIn(result)),
    })
    for (const child of reader.descendants(rollout, attempt)) {
      const isChildTrained = trained.get(result) === true && outcomes[child.end.outcome].scored
      yield rolloutConversation(reader, childResult(child), {
        task,
        parent: child.parent,
        isTrained: isChildTrained,
        advantage: null,
      })
    }
  }
}

/** The rollouts of one task are a group. */
export function groupOf(task: number): string {
  return String(task)
}

/** Voided by its group's policy, or asked for without a reward, it is not trained, whatever its outcome. One whose record is damaged is not trained either. */
function isTrained(result: StoredRollout): boolean {
  if (!outcomes[result.outcome].scored) return false
  const record = unlessDamaged(() => result.record)
  return record !== undefined && !record.voided && !record.unscored
}

type RolloutResult = Omit<StoredRollout, 'task' | 'reward' | 'endedAt'>

function childResult({ end, rollout, attempt, sample }: EndedAttempt): RolloutResult {
  const { outcome, leaf } = end
  return {
    rollout,
    attempt,
    sample,
    outcome,
    leaf,
    get record() {
      return end.record
    },
  }
}

function rolloutConversation(
  reader: RunReader,
  result: RolloutResult,
  place: Pick<ConversationFacts, 'parent' | 'advantage'> & Pick<StoredConversation, 'isTrained'> & { task: TaskName },
): StoredConversation {
  const { rollout: id, attempt, sample, outcome, leaf } = result
  const { task, parent, advantage, isTrained: mayTrain } = place
  const plainFacts: ConversationFacts = {
    session: id,
    parent,
    group: groupOf(task.index),
    tenant: null,
    task: task.id,
    sample,
    sealed: true,
    outcome,
    truncated: false,
    rewards: {},
    advantage,
  }
  return {
    id,
    plainFacts,
    get facts() {
      const { truncated, rewards } = result.record
      return { ...plainFacts, truncated, rewards }
    },
    isTrained: mayTrain,
    end: leaf,
    get rewards() {
      const { reward, timing } = result.record
      return mayTrain && reward !== null ? [{ node: null, value: reward, at: timing.startedAt }] : []
    },
    firstWithoutTokens: () => reader.firstWithoutTokens(id, attempt),
    bareNodes: () => reader.bareNodes(id, attempt),
    nodes: () => reader.eachNode(id, attempt),
  }
}
