import type { SessionView } from '../../gateway/index.ts'
import { columns } from '../format/columns.ts'
import { formatCount } from '../format/count.ts'
import { printableLine } from '../format/printable.ts'
import { formatScore } from '../format/score.ts'
import type { Output } from '../process/output.ts'

const nothing = '–'

/** The sessions of a gateway as a table, a line each. */
export function sessionTable(
  sessions: readonly SessionView[],
  { style, isTTY, columns: width }: Pick<Output, 'style' | 'isTTY' | 'columns'>,
): readonly string[] {
  const hasTenants = new Set(sessions.map(({ tenant }) => tenant)).size > 1
  return columns({
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
    width: isTTY ? width : Number.POSITIVE_INFINITY,
    style,
  })
}
