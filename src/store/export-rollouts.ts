import type { MillraceError } from '../errors/index.ts'
import type { MessageNode } from '../schema/index.ts'
import { damagedMessages, damagedRecord, decoded, isDamage } from './damage.ts'
import { damagedRollout } from './damaged-rollout.ts'
import { expertsText } from './experts-text.ts'
import { rolloutLine } from './_rollout-line.ts'
import type { RunReader } from './run-reader.ts'
import type { StoredText } from './stored-run.ts'

export interface ExportOptions {
  readonly format: 'jsonl'
  /** Adds `nodes`: every message of the accepted attempt with its token ids and log-probabilities. */
  readonly tokens?: boolean
  /** Hears of each rollout that cannot be read. A line of kind `damaged` stands for it in the export, too. */
  readonly onDamaged?: (rollout: string, error: MillraceError) => void
}

/**
 * One finished rollout a line, newline included, in the order they were accepted. A log-probability that is not finite is
 * null. A rollout that cannot be read does not cost the others.
 */
export async function* exportRollouts(reader: RunReader, options: ExportOptions): AsyncGenerator<string, void, void> {
  for (const stored of reader.endedTexts()) yield lineOf(reader, stored, options)
}

function lineOf(reader: RunReader, stored: StoredText, options: ExportOptions): string {
  try {
    return wholeLine(reader, stored, options)
  } catch (error) {
    if (!isDamage(error)) throw error
    options.onDamaged?.(stored.rollout, error)
    return `${JSON.stringify(damagedRollout(reader, stored, error))}\n`
  }
}

function wholeLine(reader: RunReader, stored: StoredText, { tokens }: ExportOptions): string {
  const { rollout, attempt, text } = stored
  checkJson(rollout, text)
  const nodes = tokens ? `,"nodes":${JSON.stringify(reader.nodes(rollout, attempt).map(plainNode))}` : ''
  return rolloutLine(text.record, text.messages, nodes)
}

/** Texts are passed on as they are, and one that is no JSON would spoil the line for whoever reads it. */
function checkJson(rollout: string, { record, messages }: StoredText['text']): void {
  decoded(
    () => void JSON.parse(record),
    (cause) => damagedRecord(rollout, cause),
  )
  decoded(
    () => {
      for (const message of messages) JSON.parse(message)
    },
    (cause) => damagedMessages(rollout, undefined, cause),
  )
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
