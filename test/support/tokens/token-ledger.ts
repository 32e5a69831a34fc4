import { hash } from 'node:crypto'
import { bytesOf, commonNumbers } from '../../../src/kit/index.ts'
import type { EmittedReply } from '../../../src/simulator/index.ts'

interface Sampled {
  readonly promptIds: Int32Array
  readonly ids: Int32Array
  readonly logprobs: Float32Array
  readonly versions: readonly (string | null)[]
}

/** How a recording differs from what the backend sampled: numbers of tokens, and of replies that are missing or made up. */
export interface Differences {
  sampledTokens: number
  replies: number
  unknownReplies: number
  missingReplies: number
  ids: number
  masks: number
  logprobs: number
  versions: number
}

export function noDifferences(): Differences {
  return {
    sampledTokens: 0,
    replies: 0,
    unknownReplies: 0,
    missingReplies: 0,
    ids: 0,
    masks: 0,
    logprobs: 0,
    versions: 0,
  }
}

export interface TrainingRow {
  readonly session: string
  readonly splitAt: object | null
  readonly samples: readonly { readonly start: number; readonly count: number; readonly trains: boolean }[]
  readonly versions: readonly { readonly version: string | null; readonly count: number }[]
  readonly ids: Int32Array
  readonly mask: Uint8Array
  readonly logprobs: Float32Array
}

/** What the backend sampled in one session, in its own words: the replies that it sent whole. */
export class TokenLedger {
  readonly replies: readonly Sampled[]
  /** The same tokens may be sampled twice after the same prompt. */
  readonly #byTokens: ReadonlyMap<string, readonly Sampled[]>

  constructor(emitted: readonly EmittedReply[]) {
    this.replies = emitted
      .filter(({ finish }) => finish !== null && finish !== 'abort')
      .map(({ promptIds, ids, logprobs, versions }) => ({
        promptIds: Int32Array.from(promptIds),
        ids: Int32Array.from(ids),
        logprobs: Float32Array.from(logprobs),
        versions: ids.map((_, index) => versions.findLast(({ from }) => from <= index)?.version ?? null),
      }))
    this.#byTokens = Map.groupBy(this.replies, ({ promptIds, ids }) => keyOf(promptIds, ids))
  }

  /** Compares training rows, all of the session's, with what was sampled: each reply must be trained once, and nothing else. */
  compareRows(rows: readonly TrainingRow[], found: Differences): void {
    const trained = new Set<Sampled>()
    for (const { samples, ids, mask, logprobs, versions } of rows) {
      const rowVersions = versions.flatMap(({ version, count }) => Array.from({ length: count }, () => version))
      const masked = new Uint8Array(ids.length)
      for (const { start, count, trains } of samples) {
        const turn = { promptIds: ids.subarray(0, start), ids: ids.subarray(start, start + count) }
        const reply = this.#find({ ...turn, logprobs: logprobs.subarray(start, start + count) }, trained)
        if (trains) masked.fill(1, start, start + count)
        if (!reply) {
          found.unknownReplies += 1
          found.ids += count
          continue
        }
        if (trains && trained.has(reply)) found.masks += count
        if (trains) trained.add(reply)
        for (let at = 0; at < count; at += 1) {
          if (logprobs[start + at] !== reply.logprobs[at]) found.logprobs += 1
          if (rowVersions[start + at] !== reply.versions[at]) found.versions += 1
        }
      }
      for (let at = 0; at < ids.length; at += 1) if (mask[at] !== masked[at]) found.masks += 1
    }
    this.#count(trained, found)
  }

  /** The reply with these tokens. Of several, one that was not seen yet and has the same log-probabilities. */
  #find(
    { promptIds, ids, logprobs }: Pick<Sampled, 'promptIds' | 'ids' | 'logprobs'>,
    seen: ReadonlySet<Sampled>,
  ): Sampled | undefined {
    const equal = this.#byTokens.get(keyOf(promptIds, ids)) ?? []
    const same = equal.filter((reply) => reply.logprobs.every((logprob, at) => logprob === logprobs[at]))
    return same.find((reply) => !seen.has(reply)) ?? same[0] ?? equal[0]
  }

  #count(seen: ReadonlySet<Sampled>, found: Differences): void {
    found.replies += this.replies.length
    found.missingReplies += this.replies.length - seen.size
    found.sampledTokens += this.replies.reduce((sum, { ids }) => sum + ids.length, 0)
  }

  /** How many replies begin with other tokens than the reply that they follow; `parents[i]` is the place of that of reply i. */
  drift(parents: readonly (number | undefined)[]): { readonly laterTurns: number; readonly driftedTurns: number } {
    let [laterTurns, driftedTurns] = [0, 0]
    for (const [index, parent] of parents.entries()) {
      const [before, reply] = [parent === undefined ? undefined : this.replies[parent], this.replies[index]]
      if (!before || !reply) continue
      const whole = Int32Array.from([...before.promptIds, ...before.ids])
      laterTurns += 1
      if (commonNumbers(whole, reply.promptIds) < whole.length) driftedTurns += 1
    }
    return { laterTurns, driftedTurns }
  }
}

function keyOf(promptIds: Int32Array, ids: Int32Array): string {
  return hash('sha1', Buffer.concat([bytesOf(promptIds), bytesOf(ids)])) + String(promptIds.length)
}
