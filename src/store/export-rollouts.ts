import type { MillraceError } from '../errors/index.ts'
import type { MessageNode } from '../schema/index.ts'
import { nodePieces } from './node-json.ts'
import type { RunReader } from './run-reader.ts'
import { storedLine } from './_stored-line.ts'
import type { StoredText } from './stored-run.ts'

export interface ExportOptions {
  readonly format: 'jsonl'
  /** Adds `nodes`: every message of the accepted attempt with its token ids and log-probabilities. */
  readonly tokens?: boolean
  /** Called for each rollout that cannot be read. A line of kind `damaged` stands for it in the export, too. */
  readonly onDamaged?: (rollout: string, error: MillraceError) => void
}

/**
 * One finished rollout a line, newline included, in the order they were accepted. A log-probability that is not finite is null. A
 * rollout that cannot be read does not end the export.
 */
export async function* exportRollouts(reader: RunReader, options: ExportOptions): AsyncGenerator<string, void, void> {
  const { tokens, onDamaged } = options
  const nodes = ({ rollout, attempt }: StoredText): string =>
    `,"nodes":[${reader.nodes(rollout, attempt).map(nodeJson).join(',')}]`
  const lineOptions = { tasks: reader, extra: tokens ? nodes : undefined, onDamaged }
  for (const stored of reader.endedTexts()) yield storedLine(stored, lineOptions)
}

function nodeJson(node: MessageNode): string {
  return [...nodePieces(node, 'numbers')].join('')
}
