import { messageJson } from '../../apis/index.ts'
import { commonLength, pathText } from '../../kit/index.ts'
import type { StoredSession } from '../../rollout/index.ts'
import type { Json, Message, MessageNode, Outcome, RolloutRecord, ToolRepair } from '../../schema/index.ts'
import type { BareRecord, NodeEntry } from '../../store/index.ts'
import type { RecordedRollout } from './recorded-rollout.ts'
import type { ReplayedSession } from './replay-journal.ts'

export interface ReplayReport {
  readonly rollout: string
  readonly attempt: number
  /** Null if the rollout is unreadable. */
  readonly outcome: Outcome | null
  /** `skipped`: there is nothing to run again. `unreadable`: the rollout is damaged. `why` says more. */
  readonly verdict: 'identical' | 'different' | 'skipped' | 'unreadable'
  /** What kept the replay from reaching its end, or from starting. */
  readonly why?: string
  readonly messages: number
  readonly children: {
    readonly replayed: number
    /** Children that did not run again, as their tools were answered from the recording. */
    readonly kept: number
  }
  /** At most `maxDifferences` of them; `omitted` says how many more there are. */
  readonly differences: readonly Difference[]
  readonly omitted: number
  readonly first?: MessageDifference
  readonly hints: readonly string[]
}

const maxDifferences = 50

export interface Difference {
  readonly session: string
  /** `message 3 (tool)`, `reward`, `usage`. */
  readonly what: string
  /** A short form of the value, or of its first field that differs, as `output: 12`; null if there is none. */
  readonly recorded: string | null
  readonly replayed: string | null
}

export interface MessageDifference {
  readonly session: string
  readonly seq: number
  readonly recorded: Message | null
  readonly replayed: Message | null
}

interface Replayed {
  readonly sessions: ReadonlyMap<string, ReplayedSession>
  /** Undefined if the replay did not reach its end: `why` says what kept it from that. */
  readonly record: RolloutRecord | undefined
  readonly why: string | undefined
}

export function replayReport(recording: RecordedRollout, replayed: Replayed): ReplayReport {
  const { record, sessions } = recording
  const { why } = replayed
  const recalled = new Set(Array.from(replayed.sessions.values(), (session) => session.recalled).flat())
  const { differences, omitted, first, messages } = compared(recording, replayed, recalled)
  return {
    rollout: record.id,
    attempt: record.attempt,
    outcome: record.outcome,
    verdict: differences.length === 0 && why === undefined ? 'identical' : 'different',
    ...(why !== undefined && { why }),
    messages,
    children: {
      replayed: sessions.filter(({ id, parent }) => parent !== null && replayed.sessions.has(id)).length,
      kept: recalled.size,
    },
    differences,
    omitted,
    ...(first && { first }),
    hints: [],
  }
}

export function skippedReport({ id, attempt, outcome }: BareRecord, why: string): ReplayReport {
  return { ...nothingRan, rollout: id, attempt, outcome, verdict: 'skipped', why }
}

export function unreadableReport(rollout: string, attempt: number, why: string): ReplayReport {
  return { ...nothingRan, rollout, attempt, outcome: null, verdict: 'unreadable', why }
}

const nothingRan = { messages: 0, children: { replayed: 0, kept: 0 }, differences: [], omitted: 0, hints: [] }

function compared(
  { record, sessions }: RecordedRollout,
  replayed: Replayed,
  recalled: ReadonlySet<string>,
): Comparison {
  const comparison = new Comparison()
  for (const { id, nodes } of sessions) {
    const isRecalled = recalled.has(id.slice(record.id.length))
    if (!replayed.sessions.has(id) && !isRecalled) comparison.strange(id, 'recorded', nodes.length)
  }
  const known = new Map(sessions.map((session) => [session.id, session]))
  for (const [id, session] of replayed.sessions) {
    const recorded = known.get(id)
    if (!recorded) {
      comparison.strange(id, 'replayed', session.nodes.length)
      continue
    }
    comparison.session(recorded, session)
    if (recorded.parent !== null && recorded.record && session.record !== undefined) {
      comparison.record(id, recorded.record, JSON.parse(session.record) as BareRecord)
    }
  }
  if (replayed.record) comparison.record(record.id, record, replayed.record)
  return comparison
}

/** The fields that must be repeated. Times differ, and a resumed rollout may have asked more judges. */
const comparedFields = [
  'outcome',
  'truncated',
  'agentOutcome',
  'voided',
  'unscored',
  'reward',
  'rewards',
  'metrics',
  'answer',
  'turns',
  'toolCalls',
  'toolErrors',
  'toolRepairs',
  'children',
  'usage',
  'info',
] as const satisfies readonly (keyof BareRecord)[]

class Comparison {
  readonly differences: Difference[] = []
  omitted = 0
  messages = 0
  #first: (MessageDifference & { readonly at: number }) | undefined

  /** The differing message that was recorded first: those after it may follow from it. */
  get first(): MessageDifference | undefined {
    if (!this.#first) return undefined
    const { at: _at, ...first } = this.#first
    return first
  }

  session(recorded: StoredSession, replayed: ReplayedSession): void {
    const count = Math.max(recorded.nodes.length, replayed.nodes.length)
    const before = this.differences.length
    for (let seq = 0; seq < count; seq += 1) this.#node(recorded.id, recorded.nodes[seq], replayed.nodes[seq])
    this.messages += count
    this.#contexts(recorded, replayed)
    // A hash covers all messages before it, so the last one is enough.
    if (this.differences.length > before) return
    this.value(recorded.id, 'hash', recorded.nodes.at(-1)?.hash ?? null, replayed.nodes.at(-1)?.hash ?? null)
  }

  strange(id: string, where: 'recorded' | 'replayed', nodes: number): void {
    const text = `a child of ${nodes} message${nodes === 1 ? '' : 's'}`
    this.#add({
      session: id,
      what: 'child',
      recorded: where === 'recorded' ? text : null,
      replayed: where === 'replayed' ? text : null,
    })
  }

  record(session: string, recorded: BareRecord, replayed: BareRecord | RolloutRecord): void {
    for (const field of comparedFields) this.#value(session, field, recorded[field], replayed[field])
    // Only the code is compared: an error that is thrown again is wrapped again, in other words perhaps.
    this.#value(session, 'error', recorded.error?.code, replayed.error?.code)
  }

  value(session: string, what: string, recorded: string | null, replayed: string | null): void {
    if (recorded !== replayed) this.#addShown(session, what, shownTexts(recorded, replayed))
  }

  #node(session: string, recorded: MessageNode | undefined, replayed: NodeEntry | undefined): void {
    const recordedJson = recorded ? messageJson(recorded.message) : null
    const replayedJson = replayed?.message ?? null
    const seq = recorded?.seq ?? replayed?.seq ?? 0
    if (recordedJson !== replayedJson) {
      const recordedMessage = recorded?.message ?? null
      const replayedMessage = replayedJson === null ? null : (JSON.parse(replayedJson) as Message)
      const { role } = recordedMessage ?? replayedMessage ?? { role: '?' }
      const shown = shownDifference(recordedMessage ?? undefined, replayedMessage ?? undefined)
      this.#addShown(session, `message ${seq} (${role})`, shown)
      const at = recorded?.at ?? Number.POSITIVE_INFINITY
      if (!this.#first || at < this.#first.at) {
        this.#first = { session, seq, recorded: recordedMessage, replayed: replayedMessage, at }
      }
    } else if (recorded && replayed) {
      this.value(session, `tools of message ${seq}`, toolsOf(recorded), toolsOf(metaOf(replayed)))
    }
  }

  /** Compares what the turns were sent, by turn: a call that was made again after a crash has recorded its turn twice. */
  #contexts({ id, contexts: recorded }: StoredSession, { contexts: replayed }: ReplayedSession): void {
    const before = new Map(recorded.map((context) => [turnOf(context), context]))
    const after = new Map(replayed.map((context) => [turnOf(context), context]))
    for (const turn of new Set([...before.keys(), ...after.keys()])) {
      this.#value(id, `sent in turn ${turn + 1}`, before.get(turn), after.get(turn))
    }
  }

  #value(session: string, what: string, recorded: unknown, replayed: unknown): void {
    if (sortedJson(recorded) === sortedJson(replayed)) return
    this.#addShown(session, what, shownDifference(recorded, replayed))
  }

  #addShown(session: string, what: string, [recorded, replayed]: ReturnType<typeof shownDifference>): void {
    this.#add({ session, what, recorded, replayed })
  }

  #add(difference: Difference): void {
    if (this.differences.length < maxDifferences) this.differences.push(difference)
    else this.omitted += 1
  }
}

type ToolParts = Pick<MessageNode, 'tool' | 'tools'>

function metaOf({ meta }: NodeEntry): ToolParts {
  return meta === null ? {} : (JSON.parse(meta) as ToolParts)
}

function toolsOf({ tool, tools }: ToolParts): string | null {
  const records = tools ?? (tool ? [tool] : [])
  if (records.length === 0) return null
  return records
    .map(({ name, status, repairs = [] }) => [`${name}: ${status}`, ...repairs.map(repairText)].join(', '))
    .join('; ')
}

function repairText({ rule, at, before, after, applied }: ToolRepair): string {
  return `${applied === false ? 'not ' : ''}repaired ${rule} ${sortedJson([at ?? null, before, after])}`
}

function turnOf(context: Json): number {
  return typeof context === 'object' && context !== null && 'turn' in context ? Number(context['turn']) : -1
}

/** Values longer than this are not shown whole: two of them must fit into one row of a table. */
const maxWholeChars = 40
/** How many characters of a value are shown, and how many of them before the first one that differs. */
const maxShownChars = 120
const charsBefore = 8

type Pair = readonly [recorded: string | null, replayed: string | null]

/** Two values in short: whole, or where they are long, the first of their fields that differs, with the path to it. */
export function shownDifference(recorded: unknown, replayed: unknown): Pair {
  const path: string[] = []
  let pair = [recorded, replayed] as const
  while (pair.some((value) => (sortedJson(value)?.length ?? 0) > maxWholeChars)) {
    const field = differingField(...pair)
    if (field === undefined) break
    path.push(field)
    pair = [fieldOf(pair[0], field), fieldOf(pair[1], field)]
  }
  const [one, other] = shownTexts(sortedJson(pair[0]), sortedJson(pair[1]))
  if (path.length === 0) return [one, other]
  const place = pathText(path)
  return [`${place}: ${one ?? '–'}`, `${place}: ${other ?? '–'}`]
}

/** Two texts in short: long ones from where they differ on, since they may begin alike. */
function shownTexts(recorded: string | null, replayed: string | null): Pair {
  if (Math.max(recorded?.length ?? 0, replayed?.length ?? 0) <= maxWholeChars) return [recorded, replayed]
  const start = Math.max(0, commonLength(recorded ?? '', replayed ?? '') - charsBefore)
  const shown = (text: string): string => {
    const rest = (start > 0 ? '…' : '') + text.slice(start)
    return rest.length > maxShownChars ? `${rest.slice(0, maxShownChars - 1)}…` : rest
  }
  return [recorded === null ? null : shown(recorded), replayed === null ? null : shown(replayed)]
}

/** JSON with sorted keys: asynchronous rewards may end in any order. */
function sortedJson(value: unknown): string | null {
  if (value === undefined) return null
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  )
}

function differingField(one: unknown, other: unknown): string | undefined {
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null) return undefined
  const fields = new Set([...Object.keys(one), ...Object.keys(other)])
  return fields.values().find((field) => sortedJson(fieldOf(one, field)) !== sortedJson(fieldOf(other, field)))
}

function fieldOf(value: unknown, field: string): unknown {
  return (value as Readonly<Record<string, unknown>>)[field]
}
