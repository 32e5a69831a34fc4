import type { MessageNode, TokenRecord, Usage } from '../schema/index.ts'

export interface CapturedTokens {
  readonly promptIds: Int32Array | null
  readonly ids: Int32Array | null
  readonly logprobs: Float32Array | null
}

/** The captured tokens. Fewer ids than the reply had tokens count as missing: a server may leave some out of a stream. */
export function capturedTokens({ tokens }: Pick<MessageNode, 'tokens'>, { output }: Usage): CapturedTokens {
  if (!tokens) return { promptIds: null, ids: null, logprobs: null }
  const { promptIds = null, ids, logprobs } = tokens
  if (ids.length < output) return { promptIds, ids: null, logprobs: null }
  return { promptIds, ids, logprobs: logprobs.length === ids.length ? logprobs : null }
}

export type CompleteTokens = TokenRecord & { readonly promptIds: Int32Array }

export function completeTokens(node: Pick<MessageNode, 'tokens'>, usage: Usage): CompleteTokens | undefined {
  const { promptIds, ids, logprobs } = capturedTokens(node, usage)
  if (!node.tokens || promptIds === null || ids === null || logprobs === null) return undefined
  return { ...node.tokens, promptIds }
}

/** A number of consecutive tokens of one weight version; null if it is not known or nothing was sampled. */
export interface VersionRun {
  readonly version: string | null
  readonly count: number
}

export function versionRuns({ ids, version, versionSpans }: TokenRecord): VersionRun[] {
  const spans = versionSpans ?? [{ from: 0, version: version ?? null }]
  const runs = new VersionRuns()
  for (const [index, span] of spans.entries()) {
    const end = Math.min(spans[index + 1]?.from ?? ids.length, ids.length)
    runs.add(span.version, end - span.from)
  }
  return runs.list
}

export class VersionRuns {
  readonly list: VersionRun[] = []

  add(version: string | null, count: number): void {
    if (count <= 0) return
    const last = this.list.at(-1)
    if (last && last.version === version) this.list[this.list.length - 1] = { version, count: last.count + count }
    else this.list.push({ version, count })
  }
}
