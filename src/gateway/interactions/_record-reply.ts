import type { DialectRequest } from '../../dialects/index.ts'
import {
  costOf,
  samplingRecord,
  untoldUsage,
  withUsage,
  type BrokenReply,
  type CompleteReply,
  type PartialReply,
} from '../../inference/index.ts'
import type { ItemIds } from '../../schema/index.ts'
import { completeTokens } from '../captured-tokens.ts'
import { isEmpty } from './_is-empty.ts'
import type { SessionPlace } from './_session-place.ts'
import type { UpstreamRequest } from './_upstream-request.ts'

/** Records a complete reply under the ids that its client knows it by. */
export function recordComplete(
  place: SessionPlace,
  upstream: UpstreamRequest,
  { reply, replyId, itemIds }: { reply: CompleteReply; replyId: string; itemIds: ItemIds | undefined },
): void {
  const { dialect, capturesTokens, model, request, messages, dropped } = upstream
  const { hasInstructions, promptIds } = request
  const name = {
    replyId,
    api: dialect.api,
    sampling: samplingOf(upstream, reply),
    tools: namesOf(request),
    ...(itemIds && { itemIds }),
    ...(hasInstructions && { hasInstructions }),
    ...(dropped.length > 0 && { dropped }),
  }
  const recorded = withUsage(withPrompt(reply, promptIds), messages, model.client.price)
  const lacking = capturesTokens ? 'missing' : 'unasked'
  place.recordReply(recorded, name, completeTokens(recorded, recorded.usage) ?? lacking)
}

interface LostReply {
  readonly reply: BrokenReply
  /** What came of it. */
  readonly partial: PartialReply | undefined
  readonly replyId: string | undefined
  /** Whether it was aborted on the wire. Then it is recorded even if empty: nobody knows how much was sampled. */
  readonly wasSampling: boolean
}

/** Records a lost reply, if there is anything of it. */
export function recordLost(
  place: SessionPlace,
  upstream: UpstreamRequest,
  { reply, partial = nothingYet, replyId, wasSampling }: LostReply,
): void {
  const { dialect, model, request, messages, dropped } = upstream
  const recorded = withPrompt(partial, request.promptIds)
  if (!wasSampling && isEmpty(recorded)) return
  const usage = untoldUsage(recorded, messages)
  const name = {
    api: dialect.api,
    sampling: samplingOf(upstream, { ...reply, ...partial }),
    tools: namesOf(request),
    ...(replyId !== undefined && { replyId }),
    ...(dropped.length > 0 && { dropped }),
  }
  place.recordLost(recorded, reply, { ...name, usage, cost: costOf(usage, model.client.price) })
}

/** Fields of a client's API that restrict its reply and cannot be translated restrict it all the same where they are passed on. */
function samplingOf(
  { request, isSameApi }: UpstreamRequest,
  reply: Pick<CompleteReply, 'logprobs' | 'tokens'>,
): ReturnType<typeof samplingRecord> {
  const otherConstraints = request.untranslatable.filter((name) =>
    /^(?:response_format|text\.format|tool_choice)\b/.test(name),
  )
  return samplingRecord(request, reply, { otherConstraints, isPassed: isSameApi })
}

function namesOf({ tools }: DialectRequest): string[] {
  return tools.map(({ function: { name } }) => name)
}

const nothingYet: PartialReply = { message: { role: 'assistant', content: null } }

/** Adds the prompt's tokens if the client sent them and the backend, as older ones do, does not repeat them. */
function withPrompt<Reply extends PartialReply>(reply: Reply, promptIds: Int32Array | undefined): Reply {
  if (!promptIds || !reply.tokens || reply.tokens.promptIds) return reply
  return { ...reply, tokens: { ...reply.tokens, promptIds } }
}
