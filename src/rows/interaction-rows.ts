import type {
  CallRecord,
  ClientApi,
  FinishReason,
  Message,
  MessageNode,
  RoutedExperts,
  SamplingRecord,
  Usage,
} from '../schema/index.ts'
import { type CapturedTokens, capturedTokens, type VersionRun, versionRuns } from './captured-tokens.ts'
import type { RowDiscard } from './merged-rows.ts'
import { type Credit, type Interaction, type LostSample, type RowFacts, unknownCredit } from './conversation.ts'

/** One reply, complete or lost. */
export interface InteractionRow extends RowFacts, CapturedTokens {
  readonly kind: 'interaction'
  readonly interaction: string
  readonly node: number
  readonly parentInteraction: string | null
  readonly parentNode: number | null
  readonly at: number
  readonly model: string
  readonly backend: string
  readonly api: ClientApi | null
  /** Names of what was left out of the client's request, because the model's API has no place for it. */
  readonly dropped: readonly string[]
  readonly finishReason: FinishReason | null
  readonly discarded: RowDiscard | null
  /** Whether it may be trained: not if it is discarded, or if a fork repeated it. */
  readonly trains: boolean
  readonly reward: number | null
  readonly return: number | null
  readonly sampling: SamplingRecord | null
  readonly usage: Usage
  readonly cost: number | null
  /** The messages since the parent, the reply last: the messages of all interactions in turn are the conversation. */
  readonly messages: readonly Message[]
  readonly versions: readonly VersionRun[] | null
  readonly routedExperts: RoutedExperts | null
}

/** The row of a complete reply. `discarded`: nothing of its conversation counts, so it has no reward, even if it was given one. */
export function interactionRow(
  facts: RowFacts,
  [interaction, node]: readonly [Interaction, MessageNode],
  { credit, discarded }: { readonly credit: Credit; readonly discarded: RowDiscard | null },
): InteractionRow {
  const { call } = interaction
  const parts = commonParts(facts, { ...interaction, node }, call)
  const trains = discarded === null && call.repeated !== true
  return { ...parts, finishReason: call.finishReason, discarded, trains, ...credit }
}

/** The row of a lost sample, for inspection. It has no reward, even if its session has one. */
export function lostRow(facts: RowFacts, [sample, node]: readonly [LostSample, MessageNode]): InteractionRow {
  const { discarded } = sample
  const parts = commonParts(facts, { ...sample, node }, discarded)
  return { ...parts, finishReason: null, discarded: discarded.why, trains: false, ...unknownCredit }
}

function commonParts(
  facts: RowFacts,
  { node, id, parent, messages }: Interaction | LostSample,
  call: Omit<CallRecord, 'finishReason'>,
) {
  const captured = capturedTokens(node, call.usage)
  return {
    kind: 'interaction',
    ...facts,
    interaction: id,
    node: node.seq,
    parentInteraction: parent?.id ?? null,
    parentNode: parent?.node.seq ?? null,
    at: node.at,
    model: call.model,
    backend: call.backend,
    api: call.api ?? null,
    dropped: call.dropped ?? [],
    sampling: call.sampling ?? null,
    usage: call.usage,
    cost: call.cost,
    messages,
    versions: node.tokens && captured.ids ? versionRuns(node.tokens) : null,
    ...captured,
    routedExperts: node.tokens?.routedExperts ?? null,
  } as const
}
