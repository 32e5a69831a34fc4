import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { TimeSlice } from '../kit/index.ts'
import { closedObject, type Outcome } from '../schema/index.ts'
import { isDamage, missingMessage, type RunReader, unlessDamaged } from '../store/index.ts'
import { type AdvantageRule, advantageRules } from './advantage.ts'
import {
  type ConversationMessages,
  ConversationRows,
  firstWithoutTokens,
  type RowOptions,
  type TreeOptions,
} from './conversation-rows.ts'
import { withoutTokens } from './merged-rows.ts'
import {
  binaryFrame,
  binaryHead,
  type EndRow,
  type GroupRow,
  jsonPieces,
  noRows,
  type Row,
  type RowCounts,
} from './row.ts'
import {
  type ConversationQuery,
  groupConversations,
  groupOf,
  type StoredConversation,
  storedConversations,
} from './stored-conversation.ts'

export const exportQuerySchema = closedObject({
  session: z.string().exactOptional().describe('This session or rollout only.'),
  group: z.string().exactOptional().describe('The members of this group only.'),
  format: z.enum(['jsonl', 'binary']).default('jsonl').describe('JSON lines, or frames with typed arrays.'),
  rows: z
    .enum(['interactions', 'merged'])
    .default('interactions')
    .describe('A row for each reply, or for each branch, with a mask, to train on.'),
  mainTree: z
    .enum(['longest', 'first', 'all'])
    .exactOptional()
    .describe(
      "Which tree of messages gets a session's reward. Replies outside of it are side calls. Default: longest.",
    ),
  trees: z
    .enum(['all', 'main'])
    .exactOptional()
    .describe('Include the rows of side calls, or only the rows of the main tree. Default: all.'),
  discount: z.coerce
    .number()
    .min(0)
    .max(1)
    .exactOptional()
    .describe('The share of a reply’s return that is added to the return of the reply before it. Default: 1.'),
  advantage: z
    .enum(advantageRules)
    .exactOptional()
    .describe('How the advantage is computed from the rewards of a group. Default: none.'),
  include: z.enum(['discarded']).exactOptional().describe('Include lost samples.'),
  skipWithoutTokens: z
    .enum(['true', 'false'])
    .transform((text) => text === 'true')
    .exactOptional()
    .describe('Leaves replies without tokens out of training rows, instead of refusing the export.'),
})

export type ExportRowsOptions = Readonly<Omit<z.infer<typeof exportQuerySchema>, 'format'>> & {
  /** Not over HTTP: `parquet`, whose columns are written while nothing else runs on this thread. */
  readonly format: RowFormat | 'parquet'
  /** Exports only this tenant's sessions; other sessions count as missing. Without it, all tenants'. */
  readonly tenant?: string
  /** Called for each session or rollout that cannot be read. The export has a row for it, too. */
  readonly onDamaged?: (session: string, error: MillraceError) => void
}

type RowFormat = 'jsonl' | 'binary'

/** Small rows are collected into chunks of this size, so that short turns do not cost a write each. */
const chunkBytes = 64 * 1024

/**
 * Exports the sessions or rollouts of a run as rows. The messages of one of them are held at a time. Options that can be refused are
 * refused before the first chunk. The last row, also returned, has the counts: an export without it was cut off.
 */
export async function* exportRows(
  reader: RunReader,
  options: ExportRowsOptions,
): AsyncGenerator<Uint8Array, EndRow, void> {
  const { format } = options
  const rows = rowsOf(reader, options)
  if (format !== 'parquet') return yield* rowChunks(rows, format)
  const { parquetChunks } = await import('./parquet.ts')
  return yield* parquetChunks(rows, options.rows)
}

/** Rows in the form of a file. */
export async function* rowChunks<Last>(
  rows: AsyncGenerator<Row | GroupRow, Last, void>,
  format: RowFormat,
): AsyncGenerator<Uint8Array<ArrayBuffer>, Last, void> {
  const slice = new TimeSlice()
  let waiting: (string | Uint8Array)[] = format === 'binary' ? [binaryHead] : []
  let waitingBytes = 0
  let next = await rows.next()
  for (; !next.done; next = await rows.next()) {
    for (const piece of format === 'binary' ? [binaryFrame(next.value)] : jsonPieces(next.value)) {
      waiting.push(piece)
      waitingBytes += piece.length
      if (waitingBytes >= chunkBytes) {
        yield joined(waiting)
        waiting = []
        waitingBytes = 0
      }
      if (slice.isOver) await slice.rest()
    }
  }
  if (waiting.length > 0) yield joined(waiting)
  return next.value
}

/** The rows of a run, its `end` last. */
export async function* rowsOf(
  reader: RunReader,
  options: Omit<ExportRowsOptions, 'format'>,
): AsyncGenerator<Row, EndRow, void> {
  checkOptions(options)
  const slice = new TimeSlice()
  const query: ConversationQuery = { ...options, advantage: options.advantage ?? 'none' }
  await checkConversations(storedConversations(reader, query), options, slice)
  const rows = new RowsOfRun(options, slice)
  for (const conversation of storedConversations(reader, query)) yield* rows.of(conversation)
  const end: EndRow = { kind: 'end', ...rows.counts }
  yield end
  return end
}

export interface GroupOptions {
  readonly task: number
  readonly rows: 'interactions' | 'merged'
  readonly advantage: AdvantageRule
}

/** The rows of the rollouts of one task, its `group` last. Replies without tokens are left out and counted. */
export async function* groupRows(
  reader: RunReader,
  { task, rows, advantage }: GroupOptions,
): AsyncGenerator<Row | GroupRow, RowCounts, void> {
  const made = new RowsOfRun({ rows, skipWithoutTokens: true }, new TimeSlice())
  const outcomeCounts: Partial<Record<Outcome, number>> = {}
  let [rollouts, scored] = [0, 0]
  const id = reader.task(task)?.id ?? null
  for (const conversation of groupConversations(reader, { index: task, id }, advantage)) {
    const { parent, outcome } = conversation.plainFacts
    if (parent === null && outcome !== null && outcome !== 'expired') {
      rollouts += 1
      if (conversation.isTrained) scored += 1
      outcomeCounts[outcome] = (outcomeCounts[outcome] ?? 0) + 1
    }
    yield* made.of(conversation)
  }
  const facts = { group: groupOf(task), task: id, taskIndex: task }
  yield { kind: 'group', ...facts, rollouts, scored, outcomes: outcomeCounts, rows: made.counts.rows }
  return made.counts
}

type RowsOptions = Omit<ExportRowsOptions, 'format' | 'group' | 'tenant' | 'advantage'>

/** Makes the rows of conversations, and counts them. */
class RowsOfRun {
  readonly counts: { -readonly [name in keyof RowCounts]: number } = { ...noRows }
  readonly #options: RowsOptions
  readonly #rowOptions: RowOptions
  readonly #slice: TimeSlice

  constructor(options: RowsOptions, slice: TimeSlice) {
    this.#options = options
    this.#slice = slice
    this.#rowOptions = {
      ...treesOf(options),
      rows: options.rows,
      discount: options.discount ?? 1,
      includeDiscarded: options.include === 'discarded',
      skipWithoutTokens: options.skipWithoutTokens === true,
    }
  }

  async *of(conversation: StoredConversation): AsyncGenerator<Row, void, void> {
    const { id } = conversation
    this.counts.sessions += 1
    try {
      // Rewards are read first, so that the nodes they are for are read after them.
      const { rewards, facts, isTrained } = conversation
      const messages = await messagesOf(conversation, this.#slice)
      for (const { node } of rewards) {
        // The last messages of a session may be missing without a gap.
        if (node !== null && node >= messages.bareNodes.length) throw missingMessage(id, node)
      }
      const rows = new ConversationRows({ ...messages, facts, rewards, isTrained }, this.#rowOptions)
      for await (const row of rows) {
        this.#count(row)
        yield row
      }
      for (const name of tokenCounts) this.counts[name] += rows.steps[name]
    } catch (error) {
      // An export of this session alone fails as a whole; else some of its rows may be out already.
      if (!isDamage(error) || this.#options.session !== undefined) throw error
      this.counts.damagedSessions += 1
      this.#options.onDamaged?.(id, error)
      yield { kind: 'damaged', ...factsOfDamaged(conversation), error: { code: error.code, message: error.rawMessage } }
    }
  }

  #count(row: Row): void {
    if (row.kind === 'empty') this.counts.emptySessions += 1
    else this.counts.rows += 1
    if ('main' in row && !row.main) this.counts.sideRows += 1
    if (row.kind !== 'merged') return
    if (row.splitAt) this.counts.splitRows += 1
    for (const trained of row.mask) this.counts.trainedTokens += trained
  }
}

const tokenCounts = ['withoutTokens', 'laterTurns', 'driftedTurns', 'driftedTokens'] as const

async function messagesOf(
  { id, end, bareNodes, nodes }: StoredConversation,
  slice: TimeSlice,
): Promise<ConversationMessages> {
  return { id, end, bareNodes: await Array.fromAsync(slice.over(bareNodes())), nodes: () => slice.over(nodes()) }
}

function factsOfDamaged(conversation: StoredConversation): StoredConversation['plainFacts'] {
  return unlessDamaged(() => conversation.facts) ?? conversation.plainFacts
}

function treesOf({ mainTree = 'longest', trees = 'all' }: Partial<TreeOptions>): TreeOptions {
  return { mainTree, trees }
}

function checkOptions({ session, group, discount = 1 }: Partial<ExportRowsOptions>): void {
  if (session !== undefined && group !== undefined) {
    throw new MillraceError('usage', 'choose a session or a group to export, not both')
  }
  if (discount >= 0 && discount <= 1) return
  throw new MillraceError('usage', `the discount is a number from 0 to 1, not ${discount}`)
}

async function checkConversations(
  conversations: Iterable<StoredConversation>,
  options: Omit<ExportRowsOptions, 'format'>,
  slice: TimeSlice,
): Promise<void> {
  const mustHaveTokens = options.rows === 'merged' && options.skipWithoutTokens !== true
  let count = 0
  for (const conversation of conversations) {
    count += 1
    if (!mustHaveTokens) break
    const node = conversation.isTrained ? await untrainableReply(conversation, options, slice) : undefined
    if (node !== undefined) throw withoutTokens(conversation.id, node)
    if (slice.isOver) await slice.rest()
  }
  const { session, group } = options
  if (count > 0 || (session === undefined && group === undefined)) return
  const what = session === undefined ? `group ${group}` : `session or rollout ${session}`
  throw new MillraceError('session_not_found', `there is no ${what}; leave it out to export all`, {
    data: { status: 404 },
  })
}

/** The first reply that cannot be made into training rows; none for a damaged session, which has a row of its own. */
async function untrainableReply(
  conversation: StoredConversation,
  options: Partial<TreeOptions>,
  slice: TimeSlice,
): Promise<number | undefined> {
  try {
    const node = conversation.firstWithoutTokens()
    if (node === undefined || options.trees !== 'main') return node
    return await firstWithoutTokens(await messagesOf(conversation, slice), treesOf(options))
  } catch (error) {
    if (isDamage(error)) return undefined
    throw error
  }
}

/** In memory of its own, which can be given to another thread. */
function joined(pieces: readonly (string | Uint8Array)[]): Uint8Array<ArrayBuffer> {
  const parts = pieces.map((piece) => (typeof piece === 'string' ? Buffer.from(piece) : piece))
  const bytes = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0))
  let offset = 0
  for (const part of parts) {
    bytes.set(part, offset)
    offset += part.byteLength
  }
  return bytes
}
