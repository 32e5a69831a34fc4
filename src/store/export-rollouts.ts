import type { MessageNode } from '../schema/index.ts'
import { expertsText } from './experts-text.ts'
import { rolloutLine } from './_rollout-line.ts'
import type { RunReader } from './run-reader.ts'

export interface ExportOptions {
  readonly format: 'jsonl'
  /** Adds `nodes`: every message of the accepted attempt with its token ids and log-probabilities. */
  readonly tokens?: boolean
}

/** One finished rollout a line, newline included, in the order they were accepted. A log-probability that is not finite is null. */
export async function* exportRollouts(reader: RunReader, options: ExportOptions): AsyncGenerator<string, void, void> {
  for (const { rollout, attempt, record, messages } of reader.endedTexts()) {
    const nodes = options.tokens ? `,"nodes":${JSON.stringify(reader.nodes(rollout, attempt).map(plainNode))}` : ''
    yield rolloutLine(record, messages, nodes)
  }
}

function plainNode({ tokens, ...node }: MessageNode): Record<string, unknown> {
  if (!tokens) return node
  const { promptIds, ids, logprobs, version, versionSpans, routedExperts } = tokens
  return {
    ...node,
    tokens: {
      ...(promptIds && { promptIds: Array.from(promptIds) }),
      ids: Array.from(ids),
      logprobs: Array.from(logprobs),
      ...(version !== undefined && { version }),
      ...(versionSpans && { versionSpans }),
      // As text: a list of them would be the longest part of a line by far.
      ...(routedExperts && { routedExperts: expertsText(routedExperts) }),
    },
  }
}
