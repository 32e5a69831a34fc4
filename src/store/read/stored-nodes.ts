import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { MillraceError } from '../../errors/index.ts'
import type { MessageNode, TokenRecord } from '../../schema/index.ts'
import type { BlobStore } from '../write/blob-store.ts'
import { decoded, missingMessage } from './damage.ts'
import { pages } from '../write/database.ts'
import { type NodeMeta, promptAfter, type PromptBase, PromptBases, restoreExperts } from '../write/node-format.ts'
import { storedMessage } from './conversations.ts'

export interface NodeWithoutTokens extends MessageNode {
  /** Whether this is a complete reply, delivered or not, without all the tokens that training needs. */
  readonly lacksTokens: boolean
}

/**
 * Whether a complete reply lacks its prompt, has fewer ids than were sampled, or lacks a log-probability for an id. Empty arrays
 * are stored all the same. Ids and log-probabilities have the same length, 4 bytes each; large ones are references of one length,
 * whose content is not looked at. `completeTokens` says the same of a node in memory.
 */
const lacksTokensSql = `(sampled = 1 AND json_type(meta, '$.call') IS NOT NULL AND (
  prompt_ids IS NULL OR ids IS NULL OR logprobs IS NULL OR length(ids) <> length(logprobs)
  OR (typeof(ids) = 'blob' AND length(ids) < 4 * (meta ->> '$.call.usage.output'))))`

const nodeColumns = 'position, seq, parent, hash, sampled, at, meta, message'
const bareColumns = `${nodeColumns}, ${lacksTokensSql} AS lacks_tokens`
const allColumns = `${nodeColumns}, version, prompt_ids, ids, logprobs, routed_experts`
const inAttempt = 'FROM node WHERE rollout = ? AND attempt = ?'
const ofAttempt = `${inAttempt} AND position > ? ORDER BY position LIMIT ?`

/** Nodes per page. Few, because one node may carry a prompt of a hundred thousand tokens. */
const pageNodes = 16

export class StoredNodes {
  readonly #database: DatabaseSync
  readonly #blobs: BlobStore
  readonly #page: StatementSync
  readonly #barePage: StatementSync
  readonly #bareOne: StatementSync
  readonly #last: StatementSync
  readonly #withoutTokens: StatementSync

  constructor(database: DatabaseSync, blobs: BlobStore) {
    this.#database = database
    this.#blobs = blobs
    this.#page = database.prepare(`SELECT ${allColumns} ${ofAttempt}`)
    this.#barePage = database.prepare(`SELECT ${bareColumns} ${ofAttempt}`)
    this.#bareOne = database.prepare(`SELECT ${bareColumns} ${inAttempt} AND seq = ?`)
    this.#last = database.prepare(`SELECT seq ${inAttempt} ORDER BY position DESC LIMIT 1`)
    this.#withoutTokens = database.prepare(
      `SELECT seq ${inAttempt} AND meta ->> '$.undelivered' IS NULL AND ${lacksTokensSql} ORDER BY position LIMIT 1`,
    )
  }

  /** The nodes in the order they were recorded, also those recorded during the iteration. */
  *of(rollout: string, attempt: number): Generator<MessageNode, void, void> {
    const bases = new PromptBases()
    for (const row of this.#rows<NodeRow>(this.#page, rollout, attempt)) {
      yield decodedNode(rollout, row, () => this.#whole(row, bases))
    }
  }

  /** The same nodes without tokens, whose pages are not even read. */
  *bareOf(rollout: string, attempt: number): Generator<NodeWithoutTokens, void, void> {
    for (const row of this.#rows<BareRow>(this.#barePage, rollout, attempt)) {
      yield decodedNode(rollout, row, () => this.#bareNode(row))
    }
  }

  bareAt(rollout: string, attempt: number, seq: number): NodeWithoutTokens | undefined {
    const row = decoded(`a message of ${rollout}`, () => this.#bareOne.get(rollout, attempt, seq)) as
      | BareRow
      | undefined
    return row && decodedNode(rollout, row, () => this.#bareNode(row))
  }

  /** All nodes of the run without their tokens. Each is read by itself, so that a damaged node does not affect the others. */
  *readings(): Generator<() => MessageNode, void, void> {
    const rows = this.#database.prepare(`SELECT rollout, ${nodeColumns} FROM node ORDER BY position`).iterate()
    for (const each of rows) {
      const row = each as StoredRow & { rollout: string }
      yield () => decodedNode(row.rollout, row, () => this.#bare(row).node)
    }
  }

  lastSeq(rollout: string, attempt: number): number | undefined {
    return this.#last.get(rollout, attempt)?.['seq'] as number | undefined
  }

  /** The first complete reply that came without prompt ids, ids or log-probabilities, if there is one. */
  firstWithoutTokens(rollout: string, attempt: number): number | undefined {
    const found = decoded(`a message of ${rollout}`, () => this.#withoutTokens.get(rollout, attempt))
    return found?.['seq'] as number | undefined
  }

  #whole(row: NodeRow, bases: PromptBases): MessageNode {
    const { meta, node: bare } = this.#bare(row)
    const base = meta.promptAfter === undefined ? undefined : baseNamed(bases, meta.promptAfter)
    const tokens = this.#tokens(row, meta, base)
    const node = tokens ? { ...bare, tokens } : bare
    // The writer took an undelivered reply as a base, as it did not know yet that it would not be delivered.
    bases.add(meta.undelivered && tokens ? { seq: node.seq, tokens } : node, base)
    return node
  }

  #bareNode(row: BareRow): NodeWithoutTokens {
    return { ...this.#bare(row).node, lacksTokens: row.lacks_tokens === 1 }
  }

  *#rows<Row extends StoredRow>(page: StatementSync, rollout: string, attempt: number): Generator<Row, void, void> {
    const pageAfter = (last: Row | undefined, count: number) =>
      decoded(`a message of ${rollout}`, () => page.all(rollout, attempt, last?.position ?? -1, count)) as Row[]
    let next = 0
    for (const row of pages(pageAfter, pageNodes)) {
      // Nodes are numbered as they are recorded, from 0 on, so a gap is found. Nodes missing after the last one are not.
      if (row.seq !== next) throw missingMessage(rollout, next)
      next += 1
      yield row
    }
  }

  #bare(row: StoredRow): { meta: NodeMeta; node: MessageNode } {
    const meta = row.meta === null ? noMeta : (JSON.parse(row.meta) as NodeMeta)
    const { tool, tools } = meta
    const { call, discarded } = callOf(meta)
    const node: MessageNode = {
      seq: row.seq,
      parent: row.parent,
      hash: row.hash,
      message: storedMessage(this.#blobs.text(row.message)),
      sampled: row.sampled === 1,
      at: row.at,
      ...(call && { call }),
      ...(tool && { tool }),
      ...(tools && { tools }),
      ...(discarded && { discarded }),
    }
    return { meta, node }
  }

  #tokens(row: NodeRow, meta: NodeMeta, base: PromptBase | undefined): TokenRecord | undefined {
    const { versionSpans, routedExperts } = meta
    const { prompt_ids: promptIds, ids, logprobs, version, routed_experts: expertBytes } = row
    if (promptIds === null && ids === null && logprobs === null) return undefined
    return {
      ...(promptIds !== null && { promptIds: this.#prompt(promptIds, base) }),
      ids: ids === null ? new Int32Array() : new Int32Array(this.#blobs.bytes(ids)),
      logprobs: logprobs === null ? new Float32Array() : new Float32Array(this.#blobs.bytes(logprobs)),
      ...(version !== null && { version }),
      ...(versionSpans && { versionSpans }),
      ...(routedExperts &&
        expertBytes !== null && { routedExperts: restoreExperts(routedExperts, this.#blobs.bytes(expertBytes)) }),
    }
  }

  #prompt(stored: Uint8Array | string, base: PromptBase | undefined): Int32Array {
    const ids = new Int32Array(this.#blobs.bytes(stored))
    return base ? promptAfter(base, ids) : ids
  }
}

function decodedNode<Node>(rollout: string, { seq }: StoredRow, decode: () => Node): Node {
  return decoded(`message ${seq} of ${rollout}`, decode)
}

/** A complete reply that no client got counts as discarded. */
function callOf(meta: NodeMeta): Pick<MessageNode, 'call' | 'discarded'> {
  const { call, undelivered } = meta
  return call && undelivered ? { discarded: { ...call, why: 'client_gone' } } : meta
}

function baseNamed(bases: PromptBases, seq: number): PromptBase {
  const base = bases.named(seq)
  if (base) return base
  throw new MillraceError(
    'store_failed',
    `a prompt builds on message ${seq}, which is missing or out of order; the run is damaged: restore it from a copy`,
  )
}

const noMeta: NodeMeta = {}

// Aliases, not interfaces: only aliases can be asserted from the index signature that node:sqlite returns.
type StoredRow = {
  position: number
  seq: number
  parent: number | null
  hash: string
  sampled: number
  at: number
  meta: string | null
  message: string
}

type BareRow = StoredRow & { lacks_tokens: number }

type NodeRow = StoredRow & {
  version: string | null
  prompt_ids: Uint8Array | string | null
  ids: Uint8Array | string | null
  logprobs: Uint8Array | string | null
  routed_experts: Uint8Array | string | null
}
