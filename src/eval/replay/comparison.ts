import { messageJson } from '../../inference/index.ts'
import type { Json, Message, MessageNode, RolloutRecord, ToolRepair } from '../../schema/index.ts'
import type { BareRecord, NodeEntry } from '../../store/index.ts'
import type { ReplayedSession } from './replay-journal.ts'
import type { RecordedSession } from './recording.ts'
import { shownDifference, shownTexts, sortedJson } from './shown-difference.ts'
import { maxDifferences, type Difference, type MessageDifference } from './replay-report.ts'

/** The fields of a record that must be repeated. Times are not among them: a replay has others. */
const comparedFields = [
  'outcome',
  'truncated',
  'agentOutcome',
  'voided',
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
  'judgeUsage',
  'cost',
  'info',
] as const satisfies readonly (keyof BareRecord)[]

/** Gathers the differences between a recording and its replay. */
export class Comparison {
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

  session(recorded: RecordedSession, replayed: ReplayedSession): void {
    const count = Math.max(recorded.nodes.length, replayed.nodes.length)
    const before = this.differences.length
    for (let seq = 0; seq < count; seq += 1) this.#node(recorded.id, recorded.nodes[seq], replayed.nodes[seq])
    this.messages += count
    this.#contexts(recorded, replayed)
    // A hash covers all messages before it, so the last one is enough.
    if (this.differences.length > before) return
    this.value(recorded.id, 'hash', recorded.nodes.at(-1)?.hash ?? null, replayed.nodes.at(-1)?.hash ?? null)
  }

  /** A session that only one of the two has. */
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
  #contexts({ id, contexts: recorded }: RecordedSession, { contexts: replayed }: ReplayedSession): void {
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

/** How calls ended, and their repairs. */
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
