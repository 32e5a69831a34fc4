import { z } from 'zod'
import { closedObject } from '../../schema/index.ts'
import { MillraceError } from '../../errors/index.ts'
import {
  isDamage,
  missingMessage,
  type RunReader,
  type SessionReader,
  type StoredReward,
  type StoredSession,
} from '../../store/index.ts'
import { binaryFrame, binaryHead, type EndRow, jsonPieces, type Row } from './row.ts'
import { factsOfDamaged } from './conversation.ts'
import { withoutTokens } from './merged-rows.ts'
import {
  firstWithoutTokens,
  type RowOptions,
  type SessionMessages,
  SessionRows,
  type TreeOptions,
} from './session-rows.ts'
import { TimeSlice } from '../../kit/index.ts'

export const exportQuerySchema = closedObject({
  session: z.string().exactOptional().describe('This session only.'),
  group: z.string().exactOptional().describe('The sessions of this group only.'),
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
  include: z.enum(['discarded']).exactOptional().describe('Include lost samples.'),
  skipWithoutTokens: z
    .enum(['true', 'false'])
    .transform((text) => text === 'true')
    .exactOptional()
    .describe('Leaves replies without tokens out of training rows, instead of refusing the export.'),
})

export type ExportSessionsOptions = Readonly<z.infer<typeof exportQuerySchema>> & {
  /** Exports only this tenant's sessions; other sessions count as missing. Without it, all tenants'. */
  readonly tenant?: string
  /** Called for each session that cannot be read. The export has a row for it, too. */
  readonly onDamaged?: (session: string, error: MillraceError) => void
}

/** Small rows are collected into chunks of this size, so that short turns do not cost a write each. */
const chunkBytes = 64 * 1024
const noRows = {
  sessions: 0,
  rows: 0,
  emptySessions: 0,
  damagedSessions: 0,
  withoutTokens: 0,
  sideRows: 0,
  laterTurns: 0,
  driftedTurns: 0,
}

/**
 * Exports sessions as rows, in the order in which they were started, holding the messages of one session at a time. Options
 * that can be refused are refused before the first chunk. The last row, also returned, has the counts: an export without it was
 * cut off.
 */
export async function* exportSessions(
  reader: Pick<RunReader, 'sessions'>,
  options: ExportSessionsOptions,
): AsyncGenerator<Uint8Array, EndRow, void> {
  checkOptions(options)
  const slice = new TimeSlice()
  await checkSessions(reader.sessions, options, slice)
  let waiting: (string | Uint8Array)[] = options.format === 'binary' ? [binaryHead] : []
  let waitingBytes = 0
  let end: EndRow = { kind: 'end', ...noRows }
  for await (const row of exportedRows(reader.sessions, options, slice)) {
    if (row.kind === 'end') end = row
    for (const piece of options.format === 'binary' ? [binaryFrame(row)] : jsonPieces(row)) {
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
  yield joined(waiting)
  return end
}

async function* exportedRows(
  reader: SessionReader,
  options: ExportSessionsOptions,
  slice: TimeSlice,
): AsyncGenerator<Row, void, void> {
  const rowOptions: RowOptions = {
    ...treesOf(options),
    rows: options.rows,
    discount: options.discount ?? 1,
    includeDiscarded: options.include === 'discarded',
    skipWithoutTokens: options.skipWithoutTokens === true,
  }
  const counts = { ...noRows }
  for (const session of chosenSessions(reader, options)) {
    counts.sessions += 1
    try {
      // Rewards are read first, so that the nodes they are for are read after them.
      const rewards = reader.rewardsOf(session.id)
      const messages = await messagesOf(reader, session, slice)
      checkRewarded(session.id, rewards, messages.bareNodes.length)
      const made = new SessionRows({ ...messages, rewards }, rowOptions)
      for await (const row of made) {
        if (row.kind === 'empty') counts.emptySessions += 1
        else counts.rows += 1
        if ('main' in row && !row.main) counts.sideRows += 1
        yield row
      }
      counts.withoutTokens += made.withoutTokens
      counts.laterTurns += made.laterTurns
      counts.driftedTurns += made.driftedTurns
    } catch (error) {
      // An export of this session alone fails as a whole; else some of its rows may be out already.
      if (!isDamage(error) || options.session !== undefined) throw error
      counts.damagedSessions += 1
      options.onDamaged?.(session.id, error)
      yield { kind: 'damaged', ...factsOfDamaged(session), error: { code: error.code, message: error.rawMessage } }
    }
  }
  yield { kind: 'end', ...counts }
}

async function messagesOf(reader: SessionReader, session: StoredSession, slice: TimeSlice): Promise<SessionMessages> {
  const { id } = session
  const bareNodes = await Array.fromAsync(slice.over(reader.bareNodesOf(id)))
  return { session, bareNodes, nodes: () => slice.over(reader.nodesOf(id)) }
}

function treesOf({ mainTree = 'longest', trees = 'all' }: ExportSessionsOptions): TreeOptions {
  return { mainTree, trees }
}

/** Throws if a reward is for a missing message: the last messages of a session may be missing without a gap. */
function checkRewarded(session: string, rewards: readonly StoredReward[], nodes: number): void {
  for (const { node } of rewards) if (node !== null && node >= nodes) throw missingMessage(session, node)
}

function* chosenSessions(
  reader: SessionReader,
  { tenant, session, group }: ExportSessionsOptions,
): Generator<StoredSession, void, void> {
  if (session === undefined) {
    yield* reader.each({ ...(tenant !== undefined && { tenant }), ...(group !== undefined && { group }) })
    return
  }
  const found = reader.session(session)
  if (found && (tenant === undefined || found.tenant === tenant)) yield found
}

function checkOptions({ session, group, discount = 1 }: ExportSessionsOptions): void {
  if (session !== undefined && group !== undefined) {
    throw new MillraceError('usage', 'choose a session or a group to export, not both')
  }
  if (discount >= 0 && discount <= 1) return
  throw new MillraceError('usage', `the discount is a number from 0 to 1, not ${discount}`)
}

async function checkSessions(reader: SessionReader, options: ExportSessionsOptions, slice: TimeSlice): Promise<void> {
  const mustHaveTokens = options.rows === 'merged' && options.skipWithoutTokens !== true
  let count = 0
  for (const session of chosenSessions(reader, options)) {
    count += 1
    if (!mustHaveTokens) break
    const node = await untrainableReply(session, { reader, options, slice })
    if (node !== undefined) throw withoutTokens(session.id, node)
    if (slice.isOver) await slice.rest()
  }
  const { session, group } = options
  if (count > 0 || (session === undefined && group === undefined)) return
  const what = session === undefined ? `group ${group}` : `session ${session}`
  throw new MillraceError('session_not_found', `there is no ${what}; leave it out to export all sessions`, {
    data: { status: 404 },
  })
}

/** The first reply that cannot be made into training rows; none for a damaged session, which has a row of its own. */
async function untrainableReply(
  session: StoredSession,
  { reader, options, slice }: { reader: SessionReader; options: ExportSessionsOptions; slice: TimeSlice },
): Promise<number | undefined> {
  try {
    const node = reader.firstWithoutTokens(session.id)
    if (node === undefined || options.trees !== 'main') return node
    return await firstWithoutTokens(await messagesOf(reader, session, slice), treesOf(options))
  } catch (error) {
    if (isDamage(error)) return undefined
    throw error
  }
}

function joined(pieces: readonly (string | Uint8Array)[]): Uint8Array {
  return Buffer.concat(pieces.map((piece) => (typeof piece === 'string' ? Buffer.from(piece) : piece)))
}
