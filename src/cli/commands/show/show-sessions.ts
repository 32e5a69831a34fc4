import { MillraceError } from '../../../errors/index.ts'
import { type SessionView, storedView } from '../../../gateway/index.ts'
import type { MessageNode } from '../../../schema/index.ts'
import type { FoundRun, RunReader } from '../../../store/index.ts'
import { runReference, servingEnd } from '../../stored-runs/stored-run.ts'
import { formatCount, formatMoney, formatQuantity, formatScore } from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { labelled, textTable } from '../../terminal/layout.ts'
import type { Output } from '../../terminal/output.ts'
import { printableLine, type Style } from '../../terminal/text.ts'
import { nodeLines } from './transcript.ts'

export interface ShownRun {
  readonly found: FoundRun
  readonly reader: RunReader
  readonly io: CommandIo
  readonly asJson: boolean
}

export async function showSessions(limit: number, { found, reader, io, asJson }: ShownRun): Promise<void> {
  const { stdout } = io
  const counts = reader.sessions.counts()
  const { newest, unreadable } = newestSessions(reader, limit)
  const { name: run, folder } = found
  const end = servingEnd(found)
  if (asJson) {
    const { state } = found.run
    await stdout.line(JSON.stringify({ run, folder, state, end, sessions: counts, newest, unreadable }))
    return
  }
  const { style } = stdout
  const total = counts.open + counts.ended
  const what = `gateway · ${end ?? found.run.state} · ${formatQuantity(total, 'session')}`
  void stdout.line(`${style.bold(run)}  ${what}: ${formatCount(counts.open)} open, ${formatCount(counts.ended)} ended`)
  const reference = runReference(folder, io)
  const [damaged] = unreadable
  if (damaged !== undefined) {
    const others = unreadable.length > 1 ? ` and ${formatQuantity(unreadable.length - 1, 'other')}` : ''
    void stdout.line(style.warn(`${damaged}${others} cannot be read; why:  ${io.program} show ${reference} ${damaged}`))
  }
  const [latest] = newest
  if (!latest) return
  void stdout.line()
  await stdout.lines(sessionTable(newest, stdout))
  void stdout.line()
  const more = total - newest.length - unreadable.length
  if (more > 0) void stdout.line(style.dim(`${formatCount(more)} older ones; --limit shows more`))
  void stdout.line(style.dim(`read one:    ${io.program} show ${reference} ${latest.id}`))
  void stdout.line(style.dim(`export them: ${io.program} export ${reference}`))
}

/** The newest sessions. A session whose record is damaged is only listed by its id. */
function newestSessions(reader: RunReader, limit: number): { newest: SessionView[]; unreadable: string[] } {
  const newest: SessionView[] = []
  const unreadable: string[] = []
  for (const session of reader.sessions.sessions({ order: 'newest', limit })) {
    try {
      newest.push(storedView(reader.sessions, session))
    } catch {
      unreadable.push(session.id)
    }
  }
  return { newest, unreadable }
}

export async function showSession(id: string, { found, reader, io, asJson }: ShownRun): Promise<void> {
  const session = reader.sessions.session(id)
  if (!session) throw noSession(id, { found, reader, io })
  const view = storedView(reader.sessions, session)
  const rewards = new Map(reader.sessions.rewardsOf(id).map(({ node, value }) => [node, value]))
  const nodes = Array.from(reader.sessions.bareNodesOf(id))
  if (!asJson) return await io.stdout.lines(sessionLines(view, nodes, rewards, io.stdout.style))
  const messages = nodes.map(({ seq, parent, message, at, call, discarded }) => {
    return { seq, parent, message, at, call, discarded, reward: rewards.get(seq) }
  })
  await io.stdout.line(JSON.stringify({ ...view, messages }))
}

function noSession(id: string, { found, reader, io }: Omit<ShownRun, 'asJson'>): MillraceError {
  const { sessions } = reader
  const [newest] = sessions.sessions({ order: 'newest', limit: 1 })
  const [ofGroup] = sessions.sessions({ group: id, order: 'newest', limit: 1 })
  let hint = newest ? `the newest is ${newest.id}` : 'the run has no session yet'
  if (ofGroup) {
    const reference = runReference(found.folder, io)
    hint = `this is the id of a group, whose newest session is ${ofGroup.id}; ${io.program} export ${reference} --group ${id} exports the whole group`
  }
  return new MillraceError('run_not_found', `run ${found.name} has no session ${id.slice(0, 64)}; ${hint}`)
}

const nothing = '–'

function sessionTable(sessions: readonly SessionView[], { style, tableWidth: width }: Output): readonly string[] {
  const hasTenants = new Set(sessions.map(({ tenant }) => tenant)).size > 1
  return textTable({
    columns: [
      { title: 'session' },
      ...(hasTenants ? [{ title: 'tenant', shrinks: true }] : []),
      { title: 'group', shrinks: true },
      { title: 'task', shrinks: true },
      { title: 'state' },
      { title: 'replies', align: 'right' },
      { title: 'tokens', align: 'right' },
      { title: 'reward', align: 'right' },
      { title: 'alarms', shrinks: true },
    ],
    rows: sessions.map((session) => [
      session.id,
      ...(hasTenants ? [printableLine(session.tenant)] : []),
      session.groupId,
      printableLine(session.taskId ?? nothing),
      session.state,
      formatCount(session.interactions),
      formatCount(session.used.tokens),
      session.reward === null ? nothing : formatScore(session.reward),
      style.bad(session.alarms.join(', ')),
    ]),
    width,
    style,
  })
}

/** One session of a gateway, branch after branch; messages that branches share are shown once, with the first branch. */
function* sessionLines(
  view: SessionView,
  nodes: readonly MessageNode[],
  rewards: ReadonlyMap<number | null, number>,
  style: Style,
): Generator<string, void, void> {
  yield titleLine(view, style)
  const parents = new Set(nodes.map(({ parent }) => parent))
  const branches = nodes.filter(({ seq }) => !parents.has(seq)).length
  let branch = 1
  let previous: number | null = null
  for (const node of byBranch(nodes)) {
    yield ''
    if (node.parent !== previous) {
      branch += 1
      const from = node.parent === null ? 'new conversation' : `continues from #${node.parent}`
      yield style.warn(`── branch ${branch} of ${branches}, ${from} ──`)
    }
    yield* nodeLines(node, nameMark(node, rewards.get(node.seq), style), style)
    previous = node.seq
  }
  yield ''
  yield style.dim('─'.repeat(40))
  yield* totalLines(view, branches, style)
  const dropped = new Set(nodes.flatMap(({ call, discarded }) => (call ?? discarded)?.dropped ?? []))
  if (dropped.size > 0) yield labelled('left out', printableLine([...dropped].slice(0, maxDropped).join(', ')), style)
}

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
  yield labelled('session', `${state} · group ${groupId} · tenant ${printableLine(tenant)}`, style)
  const untold = tokens === 'none' ? ' · no token ids' : tokens === 'some' ? ' · not all with token ids' : ''
  yield labelled('replies', `${formatQuantity(interactions, 'complete one')}${lost}${shape}${untold}`, style)
  yield labelled('tokens', `${formatCount(used.tokens)} sampled · ${formatMoney(used.cost)}`, style)
  yield labelled('reward', reward === null ? 'none for the session' : formatScore(reward), style)
  if (alarms.length > 0) yield labelled('alarms', style.bad(alarms.join(', ')), style)
}

function rewardText(reward: number | null): string {
  return reward === null ? 'no reward' : `reward ${formatScore(reward)}`
}
