import { outcomeNames, type Outcome } from '../../../schema/index.ts'
import {
  damagedRollout,
  isDamage,
  type DamagedRollout,
  type RunReader,
  type StoredRollout,
  unlessDamaged,
} from '../../../store/index.ts'
import { usageError } from '../../command-line/flag-value.ts'
import { textTable } from '../../terminal/layout.ts'
import { formatCount, formatScore } from '../../terminal/format.ts'
import { printableLine } from '../../terminal/text.ts'
import { DelayedProgress } from '../../terminal/output.ts'
import type { ShownRun } from './show-sessions.ts'

export interface RolloutQuery {
  readonly outcome?: Outcome | undefined
  readonly reward?: ValueFilter | undefined
  readonly turns?: ValueFilter | undefined
  readonly sort?: SortKey | undefined
  readonly isReversed: boolean
  readonly limit: number
}

export type SortKey = 'reward' | 'outcome' | 'turns'

/** Whether a value is asked for; null is a value that is not there. */
type ValueFilter = (value: number | null) => boolean

interface Match {
  readonly stored: StoredRollout
  /** What it is sorted by; null comes last. */
  readonly key: number | null
}

/** `1`, `0..0.5`, `0.5..`, `..0.5`, `<1`, `>0`, or `none` for rollouts without one. Ends of a range are part of it. */
export function parseRange(flag: string, text: string): ValueFilter {
  if (text === 'none') return (value) => value === null
  const bound = /^([<>])(\S+)$/.exec(text)
  if (bound) {
    const end = numberIn(flag, text, bound[2])
    return bound[1] === '<'
      ? settlesWithin(Number.NEGATIVE_INFINITY, (value) => value < end)
      : settlesWithin(end, (value) => value > end)
  }
  const [from = '', to = from, more] = text.split('..')
  if (more !== undefined || (from === '' && to === '')) throw noRange(flag, text)
  const low = from === '' ? Number.NEGATIVE_INFINITY : numberIn(flag, text, from)
  const high = to === '' ? Number.POSITIVE_INFINITY : numberIn(flag, text, to)
  if (low > high) throw usageError(`--${flag} ${text}: the range begins after its end`)
  return settlesWithin(low, (value) => value <= high)
}

function settlesWithin(low: number, isBelow: (value: number) => boolean): ValueFilter {
  return (value) => value !== null && value >= low && isBelow(value)
}

function numberIn(flag: string, text: string, part = ''): number {
  const value = part.trim() === '' ? Number.NaN : Number(part)
  if (Number.isNaN(value)) throw noRange(flag, text)
  return value
}

function noRange(flag: string, text: string): Error {
  return usageError(`--${flag} takes a number, a range such as 0..0.5, 0.5.. or "<1", or none; not ${text}`)
}

/** Lists rollouts that have ended, as a table or as JSON lines. Holds no more of them than it lists. */
export async function showRollouts(query: RolloutQuery, { found, reader, io, asJson }: ShownRun): Promise<void> {
  const { matches, total } = findMatches(query, reader, io.stderr)
  if (asJson) {
    for (const { stored } of matches) await io.stdout.line(JSON.stringify(recordOrDamage(reader, stored)))
    return
  }
  if (matches.length === 0) {
    const { outcome, reward, turns } = query
    const which = outcome === undefined ? '' : ` as ${outcome}`
    const filters = [...(reward ? ['this reward'] : []), ...(turns ? ['this number of turns'] : [])]
    const filtered = filters.length > 0 ? ` with ${filters.join(' and ')}` : ''
    void io.stdout.line(`no rollout of ${found.name} has ended${which}${filtered}`)
    return
  }
  const rows = matches.map(({ stored }) => {
    const record = recordOrDamage(reader, stored)
    const reward = record.reward === null ? '–' : formatScore(record.reward)
    const turns = 'turns' in record ? String(record.turns) : '–'
    return [record.id, printableLine(record.task.id ?? ''), record.outcome, reward, turns, whyOf(record)]
  })
  for (const line of textTable({
    columns: [
      { title: 'rollout' },
      { title: 'task', shrinks: true },
      { title: 'outcome' },
      { title: 'reward', align: 'right' },
      { title: 'turns', align: 'right' },
      { title: 'error', shrinks: true },
    ],
    rows,
    width: io.stdout.tableWidth,
    style: io.stdout.style,
  })) {
    void io.stdout.line(line)
  }
  const more = total - matches.length
  if (more > 0) void io.stdout.line(io.stdout.style.dim(`${formatCount(more)} more; --limit shows them`))
}

function findMatches(
  query: RolloutQuery,
  reader: RunReader,
  stderr: ShownRun['io']['stderr'],
): { matches: readonly Match[]; total: number } {
  const { outcome, reward, turns, sort, limit } = query
  const matches: Match[] = []
  let total = 0
  using progress = new DelayedProgress(stderr, 'reading results')
  for (const stored of reader.ended()) {
    progress.add()
    if (outcome !== undefined && stored.outcome !== outcome) continue
    if (reward && !reward(stored.reward)) continue
    if (turns && !turns(turnsOf(stored))) continue
    // The first ones are enough where the number of all is known.
    if (!sort && !reward && !turns && matches.length === limit) {
      const { ended, outcomes } = reader.counts()
      return { matches, total: outcome === undefined ? ended : (outcomes[outcome] ?? 0) }
    }
    total += 1
    insert({ stored, key: sort ? keyOf(stored, sort) : 0 }, matches, query)
  }
  return { matches, total }
}

/** Puts a match where it belongs, after its equals; the last one is dropped beyond the limit. */
function insert(match: Match, matches: Match[], { isReversed, limit }: RolloutQuery): void {
  const after = matches.findLastIndex((other) => !isBefore(match.key, other.key, isReversed))
  matches.splice(after + 1, 0, match)
  if (matches.length > limit) matches.pop()
}

function isBefore(key: number | null, other: number | null, isReversed: boolean): boolean {
  if (key === null || other === null) return key !== null
  return isReversed ? key > other : key < other
}

function keyOf(stored: StoredRollout, sort: SortKey): number | null {
  if (sort === 'reward') return stored.reward
  return sort === 'turns' ? turnsOf(stored) : outcomeNames.indexOf(stored.outcome)
}

function turnsOf(stored: StoredRollout): number | null {
  return unlessDamaged(() => stored.record.turns) ?? null
}

function whyOf(record: StoredRollout['record'] | DamagedRollout): string {
  if (record.error) return printableLine(record.error.message)
  return 'cutOffIn' in record && record.cutOffIn !== undefined ? `cut off in ${printableLine(record.cutOffIn)}` : ''
}

/** The record of a rollout. A damaged record affects only its own row. */
function recordOrDamage(reader: RunReader, stored: StoredRollout): StoredRollout['record'] | DamagedRollout {
  try {
    return stored.record
  } catch (error) {
    if (isDamage(error)) return damagedRollout(reader, stored, error)
    throw error
  }
}
