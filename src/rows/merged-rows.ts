import { MillraceError } from '../errors/index.ts'
import { sameNumbers } from '../kit/index.ts'
import type { DiscardReason, MessageNode, SamplingRecord, TokenRecord } from '../schema/index.ts'
import { type CompleteTokens, completeTokens, type VersionRun, versionRuns, VersionRuns } from './captured-tokens.ts'
import {
  type FactsOfRow,
  type Interaction,
  type LostSample,
  type RowFacts,
  unknownCredit,
  type Credit,
} from './conversation.ts'

/**
 * Why nothing of a row is trained. `unscored`: the outcome of its rollout is not scored, or its group was voided. Otherwise a
 * sample was lost.
 */
export type RowDiscard = DiscardReason | 'unscored'

/** One branch of a session in the form for training: every token that the model saw or sampled, once and in order. */
export interface MergedRow extends RowFacts {
  readonly kind: 'merged'
  readonly reward: number | null
  readonly samples: readonly RowSample[]
  /** Why this row does not continue the interaction before it; null if there is none before it. */
  readonly splitAt: RowSplit | null
  readonly discarded: RowDiscard | null
  readonly versions: readonly VersionRun[]
  readonly ids: Int32Array
  /** 1 for tokens that are trained in this row: sampled, with a known log-probability, and not trained by an earlier row. */
  readonly mask: Uint8Array
  /** The log-probability of every sampled token that has one, trained here or not; 0 elsewhere. */
  readonly logprobs: Float32Array
}

interface RowSample extends Credit {
  readonly interaction: string
  readonly node: number
  readonly start: number
  readonly count: number
  /** Whether this row trains the interaction: only the first of the rows that share it does, and none if a fork repeated it. */
  readonly trains: boolean
  readonly sampling: SamplingRecord | null
}

interface RowSplit extends Split {
  readonly interaction: string
  readonly node: number
}

/** An interaction with all its tokens, and the step it continues: a row holds only its last prompt. */
class Step {
  readonly interaction: Interaction
  readonly ids: Int32Array
  readonly logprobs: Float32Array
  readonly versions: readonly VersionRun[]
  readonly start: number
  readonly before: Step | undefined
  readonly splitAt: RowSplit | null
  isContinued = false
  #prompt: Int32Array | Step

  constructor(interaction: Interaction, tokens: CompleteTokens, earlier: Step | undefined) {
    this.interaction = interaction
    this.ids = tokens.ids
    this.logprobs = tokens.logprobs
    this.versions = versionRuns(tokens)
    this.start = tokens.promptIds.length
    this.#prompt = tokens.promptIds
    const split = earlier && splitBetween(earlier, tokens.promptIds)
    this.splitAt = earlier && split ? { ...nameOf(earlier.interaction), ...split } : null
    this.before = split ? undefined : earlier
    if (!this.before) return
    this.before.isContinued = true
    if (!(this.before.#prompt instanceof Step)) this.before.#prompt = this
  }

  get length(): number {
    return this.start + this.ids.length
  }

  get promptIds(): Int32Array {
    let held = this.#prompt
    while (held instanceof Step) {
      // Each lookup shortens the chain for the next one.
      this.#prompt = held
      held = held.#prompt
    }
    return held.subarray(0, this.start)
  }
}

/** The replies of a conversation that have all their tokens, and how they follow each other. */
export class Steps {
  readonly #steps = new Map<Interaction, Step>()
  withoutTokens = 0
  laterTurns = 0
  driftedTurns = 0
  driftedTokens = 0

  /** False if the reply lacks tokens. */
  add(interaction: Interaction, node: MessageNode): boolean {
    const tokens = completeTokens(node, interaction.call.usage)
    if (!tokens) {
      this.withoutTokens += 1
      return false
    }
    const earlier = this.#nearest(interaction.parent)
    const step = new Step(interaction, tokens, earlier)
    this.#steps.set(interaction, step)
    if (!earlier) return true
    this.laterTurns += 1
    if (!step.splitAt) return true
    this.driftedTurns += 1
    this.driftedTokens += earlier.length - step.splitAt.token
    return true
  }

  /** The last step of each row. */
  *last(): Generator<Step, void, void> {
    for (const step of this.#steps.values()) if (!step.isContinued) yield step
  }

  /** The nearest earlier step: interactions without tokens in between do not matter. */
  #nearest(from: Interaction | null): Step | undefined {
    for (let each = from; each; each = each.parent) {
      const step = this.#steps.get(each)
      if (step) return step
    }
    return undefined
  }
}

interface MergeOptions {
  readonly factsOf: FactsOfRow
  readonly credit: ReadonlyMap<Interaction, Credit>
  /** Why none of these rows is trained. */
  readonly discarded: RowDiscard | null
}

/** The merged rows: each reaches back from an interaction that none continues as long as prompts repeat exactly. */
export function* mergedRows(steps: Steps, options: MergeOptions): Generator<MergedRow, void, void> {
  const trained = new Set<Step>()
  for (const step of steps.last()) yield rowEndingWith(step, trained, options)
}

/** The row of a lost sample, for inspection: no token of it is trained. Undefined if it has no tokens to show. */
export function lostMergedRow(
  facts: RowFacts,
  [sample, node]: readonly [LostSample, MessageNode],
): MergedRow | undefined {
  const { discarded, id } = sample
  const tokens = completeTokens(node, discarded.usage)
  if (!tokens) return undefined
  const draft = new RowDraft(tokens)
  const { ids, logprobs, promptIds } = tokens
  draft.add({ ids, logprobs, start: promptIds.length, versions: versionRuns(tokens) }, false)
  const place = { interaction: id, node: node.seq, start: promptIds.length, count: ids.length }
  return {
    kind: 'merged',
    ...facts,
    reward: null,
    splitAt: null,
    discarded: discarded.why,
    samples: [{ ...place, trains: false, sampling: discarded.sampling ?? null, ...unknownCredit }],
    ...draft.tokens(),
  }
}

export function withoutTokens(session: string, node: number): MillraceError {
  return new MillraceError(
    'usage',
    `${session} has a reply without its prompt ids, ids or log-probabilities (node ${node}), so it cannot be made into training rows; ` +
      'export interactions instead, or leave such replies out with --skip-without-tokens (skipWithoutTokens, also in a query)',
    { data: { status: 409, session, node } },
  )
}

function nameOf({ id, node }: Interaction): Pick<RowSample, 'interaction' | 'node'> {
  return { interaction: id, node: node.seq }
}

function rowEndingWith(last: Step, trained: Set<Step>, { factsOf, credit, discarded }: MergeOptions): MergedRow {
  const path: Step[] = []
  for (let step: Step | undefined = last; step; step = step.before) path.push(step)
  const draft = new RowDraft(last)
  const samples: RowSample[] = []
  for (const step of path.toReversed()) {
    const { interaction, start, ids } = step
    const trains = discarded === null && interaction.call.repeated !== true && !trained.has(step)
    trained.add(step)
    draft.add(step, trains)
    samples.push({
      ...nameOf(interaction),
      start,
      count: ids.length,
      trains,
      sampling: interaction.call.sampling ?? null,
      ...(credit.get(interaction) ?? unknownCredit),
    })
  }
  return {
    kind: 'merged',
    ...factsOf(last.interaction),
    reward: credit.get(last.interaction)?.return ?? null,
    splitAt: path.at(-1)?.splitAt ?? null,
    discarded,
    // After all that is short: the Python client parses what follows only if it is asked for.
    samples,
    ...draft.tokens(),
  }
}

/** vLLM writes this for a log-probability that it does not have, and for all below it. */
const vllmUnknown = -9999

function isKnown(logprob: number): boolean {
  return Number.isFinite(logprob) && logprob > vllmUnknown
}

class RowDraft {
  readonly #ids: Int32Array
  readonly #mask: Uint8Array
  readonly #logprobs: Float32Array
  readonly #versions = new VersionRuns()
  #end = 0

  constructor({ promptIds, ids }: Pick<CompleteTokens, 'promptIds' | 'ids'>) {
    const length = promptIds.length + ids.length
    this.#ids = new Int32Array(length)
    this.#ids.set(promptIds)
    this.#ids.set(ids, promptIds.length)
    this.#mask = new Uint8Array(length)
    this.#logprobs = new Float32Array(length)
  }

  add(
    { start, ids, logprobs, versions }: Pick<Step, 'start' | 'ids' | 'logprobs' | 'versions'>,
    trains: boolean,
  ): void {
    this.#versions.add(null, start - this.#end)
    for (const { version, count } of versions) this.#versions.add(version, count)
    this.#end = start + ids.length
    this.#logprobs.set(logprobs, start)
    if (trains) this.#mask.fill(1, start, this.#end)
    if (!logprobs.every(isKnown)) this.#forgoUnknown(start)
  }

  /** Masks tokens without a known log-probability: nothing can be learnt from them, and one of them would spoil a whole batch. */
  #forgoUnknown(start: number): void {
    for (let at = start; at < this.#end; at += 1) {
      if (isKnown(this.#logprobs[at] ?? Number.NaN)) continue
      this.#logprobs[at] = 0
      this.#mask[at] = 0
    }
  }

  tokens(): Pick<MergedRow, 'versions' | 'ids' | 'mask' | 'logprobs'> {
    return { versions: this.#versions.list, ids: this.#ids, mask: this.#mask, logprobs: this.#logprobs }
  }
}

interface Split {
  /** The first token, counted from the start of the prompt before, that is not repeated. */
  readonly token: number
  /** `prompt`: the conversation before the reply was changed. `reply`: the reply itself came back as other tokens, or cut. */
  readonly within: 'prompt' | 'reply'
}

function splitBetween(
  earlier: Pick<TokenRecord, 'ids'> & { readonly promptIds: Int32Array },
  prompt: Int32Array,
): Split | undefined {
  const { promptIds, ids } = earlier
  const inPrompt = firstDifference(promptIds, prompt.subarray(0, promptIds.length))
  if (inPrompt !== undefined) return { token: inPrompt, within: 'prompt' }
  const inReply = firstDifference(ids, prompt.subarray(promptIds.length, promptIds.length + ids.length))
  return inReply === undefined ? undefined : { token: promptIds.length + inReply, within: 'reply' }
}

function firstDifference(expected: Int32Array, found: Int32Array): number | undefined {
  // Checked first, because they are nearly always equal.
  if (sameNumbers(expected, found)) return undefined
  const index = expected.findIndex((token, at) => token !== found[at])
  return index < 0 ? undefined : index
}
