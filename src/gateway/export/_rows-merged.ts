import { MillraceError } from '../../errors/index.ts'
import type { DiscardReason, MessageNode, SamplingRecord } from '../../schema/index.ts'
import type { Interaction, LostSample } from './_rows-conversation.ts'
import { type Split, splitBetween } from './_rows-prefix.ts'
import { unknownWorth, type Worth } from './_rows-returns.ts'
import type { FactsOfRow, RowFacts } from './_rows-session.ts'
import { type CompleteTokens, completeTokens } from '../captured-tokens.ts'
import { RunLengths, type VersionRun, versionRuns } from './_rows-versions.ts'

/** One branch of a session in the form for training: every token that the model saw or sampled, once and in order. */
export interface MergedRow extends RowFacts {
  readonly kind: 'merged'
  /** The return of the branch's last interaction. */
  readonly reward: number | null
  readonly samples: readonly RowSample[]
  /** Why this row does not continue the interaction before it; null if there is none before it. */
  readonly splitAt: RowSplit | null
  readonly discarded: DiscardReason | null
  /** The versions over all ids. A version is null where nothing was sampled. */
  readonly versions: readonly VersionRun[]
  readonly ids: Int32Array
  /** 1 for tokens that are trained in this row: sampled, with a known log-probability, and not trained by an earlier row. */
  readonly mask: Uint8Array
  /** The log-probability of every sampled token that has one, trained here or not; 0 elsewhere. */
  readonly logprobs: Float32Array
}

/** The place of one interaction's tokens in a row. */
export interface RowSample extends Worth {
  readonly interaction: string
  readonly node: number
  readonly start: number
  readonly count: number
  /** Whether this row trains the interaction: only the first of the rows that share it does. */
  readonly trains: boolean
  /** How it was sampled; null in records of earlier versions. */
  readonly sampling: SamplingRecord | null
}

export interface RowSplit extends Split {
  readonly interaction: string
  readonly node: number
}

/**
 * An interaction that has all tokens for training, and the step it continues. A prompt that continues another step begins
 * with that step's prompt, so a conversation holds only one prompt, however many turns it has.
 */
class Step {
  readonly interaction: Interaction
  readonly ids: Int32Array
  readonly logprobs: Float32Array
  readonly versions: readonly VersionRun[]
  /** Where the reply begins, which is the length of the prompt. */
  readonly start: number
  /** The step that this one continues in the same row. */
  readonly before: Step | undefined
  readonly splitAt: RowSplit | null
  /** The step's prompt, or the step that holds it now. */
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
    if (this.before && !(this.before.#prompt instanceof Step)) this.before.#prompt = this
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

export interface MergeOptions {
  /** Whether replies without tokens are left out, instead of refusing the session. */
  readonly skipWithoutTokens: boolean
}

/**
 * The merged rows, in the order of their last interactions. A row ends with an interaction that no other continues. It
 * reaches back as long as each prompt begins with exactly the prompt and the reply before it.
 */
export async function* mergedRows(
  factsOf: FactsOfRow,
  interactions: AsyncIterable<readonly [Interaction, MessageNode]>,
  worth: ReadonlyMap<Interaction, Worth>,
  { skipWithoutTokens }: MergeOptions,
): AsyncGenerator<MergedRow, void, void> {
  const steps = new Map<Interaction, Step>()
  const continued = new Set<Step>()
  for await (const [interaction, node] of interactions) {
    const tokens = completeTokens(node, interaction.call.usage)
    if (!tokens) {
      if (skipWithoutTokens) continue
      throw withoutTokens(factsOf(interaction).session, node.seq)
    }
    const step = new Step(interaction, tokens, nearestStep(interaction.parent, steps))
    if (step.before) continued.add(step.before)
    steps.set(interaction, step)
  }
  const trained = new Set<Step>()
  for (const step of steps.values()) if (!continued.has(step)) yield rowEndingWith(step, { factsOf, worth, trained })
}

/** The row of a lost sample, for inspection: no token of it is trained. Undefined if it has no tokens to show. */
export function lostMergedRow(
  factsOf: FactsOfRow,
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
    ...draft.row(factsOf(sample)),
    reward: null,
    samples: [{ ...place, trains: false, sampling: discarded.sampling ?? null, ...unknownWorth }],
    splitAt: null,
    discarded: discarded.why,
  }
}

export function withoutTokens(session: string, node: number): MillraceError {
  return new MillraceError(
    'usage',
    `session ${session} has a reply without its prompt ids, ids or log-probabilities (node ${node}), so it cannot be made into training rows; ` +
      'export its interactions instead, or leave such replies out with --skip-without-tokens (skipWithoutTokens, also in a query)',
    { data: { status: 409, session, node } },
  )
}

function nameOf({ id, node }: Interaction): Pick<RowSample, 'interaction' | 'node'> {
  return { interaction: id, node: node.seq }
}

/**
 * The nearest earlier step. Interactions without tokens in between do not matter: the prompt is compared with that step
 * anyway.
 */
function nearestStep(from: Interaction | null, steps: ReadonlyMap<Interaction, Step>): Step | undefined {
  for (let each = from; each; each = each.parent) {
    const step = steps.get(each)
    if (step) return step
  }
  return undefined
}

function rowEndingWith(
  last: Step,
  { factsOf, worth, trained }: { factsOf: FactsOfRow; worth: ReadonlyMap<Interaction, Worth>; trained: Set<Step> },
): MergedRow {
  const path: Step[] = []
  for (let step: Step | undefined = last; step; step = step.before) path.push(step)
  const draft = new RowDraft(last)
  const samples: RowSample[] = []
  for (const step of path.toReversed()) {
    const { interaction, start, ids } = step
    const trains = !trained.has(step)
    trained.add(step)
    draft.add(step, trains)
    samples.push({
      ...nameOf(interaction),
      start,
      count: ids.length,
      trains,
      sampling: interaction.call.sampling ?? null,
      ...(worth.get(interaction) ?? unknownWorth),
    })
  }
  return {
    ...draft.row(factsOf(last.interaction)),
    reward: worth.get(last.interaction)?.return ?? null,
    samples,
    splitAt: path.at(-1)?.splitAt ?? null,
    discarded: null,
  }
}

/** The arrays of a row. Its last prompt and reply give the length and all ids; each step adds its part. */
class RowDraft {
  readonly #ids: Int32Array
  readonly #mask: Uint8Array
  readonly #logprobs: Float32Array
  readonly #versions = new RunLengths()
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
    if (logprobs.includes(Number.NaN)) this.#forgoUnknown(start)
  }

  /** Masks tokens without a log-probability: nothing can be learnt from them, and one NaN would spoil a whole batch. */
  #forgoUnknown(start: number): void {
    for (let at = start; at < this.#end; at += 1) {
      if (!Number.isNaN(this.#logprobs[at])) continue
      this.#logprobs[at] = 0
      this.#mask[at] = 0
    }
  }

  row(facts: RowFacts) {
    return {
      kind: 'merged',
      ...facts,
      versions: this.#versions.list,
      ids: this.#ids,
      mask: this.#mask,
      logprobs: this.#logprobs,
    } as const
  }
}
