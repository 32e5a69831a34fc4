import type { BackendReply, ModelRequest } from '../../apis/index.ts'
import type { TokenRecord, VersionSpan } from '../../schema/index.ts'
import { versionsIn } from '../weight-versions.ts'

/** Sampling parameters that look at the tokens of the reply so far: a reply that goes on from a prompt would be sampled differently. */
const countReplyTokens = ['frequency_penalty', 'presence_penalty', 'min_tokens', 'min_new_tokens']

/** Whether a reply to the request, whose prompt is ids, can go on from its partial tokens: the rest is sampled as it would have been. */
export function isContinuable({ responseFormat, sampling }: ModelRequest): boolean {
  const { extra = {} } = sampling
  return responseFormat === undefined && !countReplyTokens.some((name) => extra[name])
}

/** The same request after the parts of its reply so far, with what they left of its limit. */
export function continued(request: ModelRequest, parts: readonly BackendReply[]): ModelRequest {
  const { prompt, sampling } = request
  if (!prompt || parts.length === 0) return request
  const ids = parts.flatMap(({ tokens }) => (tokens ? [tokens.ids] : []))
  const limit = sampling.maxTokens === undefined ? {} : { maxTokens: tokensLeft(request, parts) }
  return { ...request, prompt: prompt.extended(...ids), sampling: { ...sampling, ...limit } }
}

/** What the parts of a reply have left of the limit of its request. */
export function tokensLeft({ sampling }: ModelRequest, parts: readonly BackendReply[]): number {
  return parts.reduce((left, { tokens }) => left - (tokens?.ids.length ?? 0), sampling.maxTokens ?? Infinity)
}

/** The parts of a reply and its last one, as one: the prompt and its usage are those of the first part, the end is that of the last. */
export async function joined(earlier: readonly BackendReply[], last: BackendReply): Promise<BackendReply> {
  // An engine may have aborted it when its limit was reached: then the last part is kept already.
  const parts = earlier.at(-1) === last ? earlier : [...earlier, last]
  const [first = last] = parts
  if (first === last) return last
  const { laterVersion: _later, tokens: _tokens, isAborted: _isAborted, ...end } = last
  const records = await Promise.all(parts.map(withVersion))
  const usage = {
    ...first.usage,
    output: parts.reduce((sum, part) => sum + part.usage.output, 0),
    reasoning: parts.reduce((sum, part) => sum + part.usage.reasoning, 0),
  }
  return { ...end, usage, tokens: joinedTokens(records) }
}

/** The tokens of a part, for which the backend is asked now if it does not say their version itself. */
async function withVersion({ tokens, laterVersion }: BackendReply): Promise<TokenRecord> {
  const record = tokens ?? { ids: new Int32Array(), logprobs: new Float32Array() }
  if (!laterVersion || versionsIn(record).length > 0) return record
  const found = laterVersion.find()
  await laterVersion.look()
  const version = await found
  return version === undefined ? record : { ...record, version }
}

function joinedTokens(records: readonly TokenRecord[]): TokenRecord {
  const [first] = records
  const length = records.reduce((sum, { ids }) => sum + ids.length, 0)
  const ids = new Int32Array(length)
  const logprobs = new Float32Array(length).fill(Number.NaN)
  const spans: VersionSpan[] = []
  let areKnown = true
  let from = 0
  for (const record of records) {
    ids.set(record.ids, from)
    logprobs.set(record.logprobs, from)
    const own = record.versionSpans ?? versionsIn(record).map((version) => ({ from: 0, version }))
    if (own.length === 0 && record.ids.length > 0) areKnown = false
    for (const span of own) {
      if (spans.at(-1)?.version !== span.version) spans.push({ from: from + span.from, version: span.version })
    }
    from += record.ids.length
  }
  const [span] = spans
  return {
    ...(first?.promptIds && { promptIds: first.promptIds }),
    ids,
    logprobs,
    // Spans cannot leave tokens out, so with one part of an unknown version all of the reply is.
    ...(areKnown && span && { version: span.version, ...(spans.length > 1 && { versionSpans: spans }) }),
  }
}
