import type { AssistantMessage, MessageNode, RolloutRecord } from '../../../schema/index.ts'
import { type RunReader, type StoredAttempt, unlessDamaged } from '../../../store/index.ts'
import { formatCount, formatQuantity } from '../../terminal/format.ts'
import { inOutcomeColour, printableLine, type Style } from '../../terminal/text.ts'

/** A child with the children that it asked itself. */
export interface ChildBranch {
  readonly child: StoredAttempt
  readonly branches: readonly ChildBranch[]
}

/** How many children of one place, and how many levels of children below them, are listed. */
const maxListed = 8
const maxLevels = 3

export function childTree(reader: RunReader, rollout: string, attempt: number): readonly ChildBranch[] {
  return reader
    .children(rollout)
    .filter((child) => child.attempt === attempt)
    .map((child) => ({ child, branches: childTree(reader, child.rollout, attempt) }))
}

/**
 * The children of a conversation by where it asked for them, which their ids say: after how many replies, and in which tool
 * call. Each is taken once, in the order of the conversation; those that it has no place for stay.
 */
export class ChildPlaces {
  readonly #byPlace: Map<string, ChildBranch[]>
  #replies = 0
  /** How many calls there were since the last reply, with those in it. */
  #calls = 0

  constructor(rollout: string, tree: readonly ChildBranch[]) {
    this.#byPlace = Map.groupBy(tree, ({ child }) => child.rollout.slice(rollout.length + 1).replace(/-.*$/, ''))
  }

  /** Those that were asked for since the last reply by no tool call. */
  beforeReply(): readonly ChildBranch[] {
    return this.#take(`t${this.#replies}`)
  }

  /** Call before the lines of a message. */
  enter({ sampled, call }: MessageNode): void {
    if (!sampled || !call) return
    this.#replies += 1
    this.#calls = 0
  }

  ofNextCall(): readonly ChildBranch[] {
    const place = `t${this.#replies}c${this.#calls}`
    this.#calls += 1
    return this.#take(place)
  }

  /** Those of calls that are written in the text of a message. */
  ofTextCalls({ tool_calls: native }: AssistantMessage): readonly ChildBranch[] {
    if (native?.length) return []
    const places = [...this.#byPlace.keys()].filter((place) => place.startsWith(`t${this.#replies}c`))
    return places.flatMap((place) => this.#take(place))
  }

  rest(): readonly ChildBranch[] {
    return [...this.#byPlace.values()].flat()
  }

  #take(place: string): readonly ChildBranch[] {
    const taken = this.#byPlace.get(place) ?? []
    this.#byPlace.delete(place)
    return taken
  }
}

export function* branchLines(branches: readonly ChildBranch[], style: Style, level = 1): Generator<string, void, void> {
  const indent = '  '.repeat(level)
  for (const { child, branches: below } of branches.slice(0, maxListed)) {
    yield `${indent}↳ ${childText(child, style)}`
    if (level < maxLevels) yield* branchLines(below, style, level + 1)
    else if (below.length > 0) yield style.dim(`${indent}  ↳ ${formatCount(below.length)} of its own`)
  }
  const more = branches.length - maxListed
  if (more > 0) yield style.dim(`${indent}↳ ${formatCount(more)} more`)
}

export function childText({ rollout, end, discarded }: StoredAttempt, style: Style): string {
  const record = unlessDamaged(() => end?.record)
  const takenBack = style.dim('discarded to run again')
  if (!record) return `${rollout} ${discarded ? takenBack : 'not ended'}`
  const { toolCalls, usage } = record
  const work = [...turnTexts(record), ...(toolCalls > 0 ? [formatQuantity(toolCalls, 'tool call')] : [])]
  const tokens = `${formatCount(usage.input)} in, ${formatCount(usage.output)} out`
  const error = record.error ? `: ${printableLine(record.error.message)}` : ''
  const outcome = inOutcomeColour(record.outcome, record.outcome, style)
  return `${rollout} ${outcome}${error}${discarded ? ` (${takenBack})` : ''}${style.dim(` · ${work.join(', ')} · ${tokens}`)}`
}

/** The turns of its own conversation; and the model calls, if its children made some, too. */
export function turnTexts({ turns, usage }: Pick<RolloutRecord, 'turns' | 'usage'>): string[] {
  const calls = usage.calls > turns ? [formatQuantity(usage.calls, 'model call')] : []
  return [formatQuantity(turns, 'turn'), ...calls]
}
