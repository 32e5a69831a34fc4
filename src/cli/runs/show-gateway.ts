import { MillraceError } from '../../errors/index.ts'
import { storedView, type SessionView } from '../../gateway/index.ts'
import type { MessageNode } from '../../schema/index.ts'
import type { FoundRun, RunReader, StoredReward } from '../../store/index.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import type { CommandIo } from '../process/io.ts'
import { sessionTable } from './_session-table.ts'
import { sessionLines } from './_session-transcript.ts'
import { spoolLosses } from './spool-losses.ts'
import { runReference, servingEnd } from './stored-run.ts'

/** A stored run to show, and the output for it. */
export interface ShownRun {
  readonly found: FoundRun
  readonly reader: RunReader
  readonly io: CommandIo
  readonly asJson: boolean
}

/** Shows the run of a gateway: the number of its sessions, and the newest ones. */
export async function showSessions(limit: number, { found, reader, io, asJson }: ShownRun): Promise<void> {
  const { stdout } = io
  const counts = reader.sessions.counts()
  const { newest, unreadable } = newestSessions(reader, limit)
  const losses = spoolLosses(reader, 0)
  const { name: run, folder } = found
  const end = servingEnd(found)
  if (asJson) {
    const { state } = found.run
    await stdout.line(JSON.stringify({ run, folder, state, end, sessions: counts, newest, unreadable, losses }))
    return
  }
  const { style } = stdout
  const total = counts.open + counts.ended
  const what = `gateway · ${end ?? found.run.state} · ${formatQuantity(total, 'session')}`
  void stdout.line(`${style.bold(run)}  ${what}: ${formatCount(counts.open)} open, ${formatCount(counts.ended)} ended`)
  for (const loss of losses) void stdout.line(style.warn(loss))
  const reference = runReference(folder, io)
  const [damaged] = unreadable
  if (damaged !== undefined) {
    const others = unreadable.length > 1 ? ` and ${formatQuantity(unreadable.length - 1, 'other')}` : ''
    void stdout.line(style.warn(`${damaged}${others} cannot be read; why:  ${io.program} show ${reference} ${damaged}`))
  }
  const [latest] = newest
  if (!latest) return
  void stdout.line()
  for (const line of sessionTable(newest, stdout)) void stdout.line(line)
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

/** Shows the messages of one session. */
export async function showSession(id: string, { found, reader, io, asJson }: ShownRun): Promise<void> {
  const session = reader.sessions.session(id)
  if (!session) throw noSession(id, { found, reader, io })
  const view = storedView(reader.sessions, session)
  const rewards = reader.sessions.rewardsOf(id)
  const nodes = Array.from(reader.sessions.bareNodesOf(id))
  if (asJson) {
    await io.stdout.line(JSON.stringify(asDocument(view, nodes, rewards)))
    return
  }
  for (const line of sessionLines({ view, nodes, rewards }, io.stdout.style)) {
    if (io.stdout.readerGone.aborted) return
    await io.stdout.line(line)
  }
}

function asDocument(view: SessionView, nodes: readonly MessageNode[], rewards: readonly StoredReward[]): object {
  const byNode = new Map(rewards.map(({ node, value }) => [node, value]))
  return {
    ...view,
    messages: nodes.map(({ seq, parent, message, at, call, discarded }) => ({
      seq,
      parent,
      message,
      at,
      call,
      discarded,
      reward: byNode.get(seq),
    })),
  }
}

function noSession(id: string, { found, reader, io }: Omit<ShownRun, 'asJson'>): MillraceError {
  const { sessions } = reader
  const [newest] = sessions.sessions({ order: 'newest', limit: 1 })
  const [ofGroup] = sessions.sessions({ group: id, order: 'newest', limit: 1 })
  let hint = newest ? `the newest is ${newest.id}` : 'there is none yet'
  if (ofGroup) {
    const reference = runReference(found.folder, io)
    hint = `that is a group, whose newest session is ${ofGroup.id}; ${io.program} export ${reference} --group ${id} has all of it`
  }
  return new MillraceError('run_not_found', `run ${found.name} has no session ${id.slice(0, 64)}; ${hint}`)
}
