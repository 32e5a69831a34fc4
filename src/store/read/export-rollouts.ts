import type { MillraceError } from '../../errors/index.ts'
import { memoryPieces, numberPieces } from '../../kit/index.ts'
import type { MessageNode, TokenRecord } from '../../schema/index.ts'
import { isDamage } from './damage.ts'
import { damagedRollout, storedLine } from './rollout-line.ts'
import type { RunReader } from './run-reader.ts'
import type { BareRecord, EndedAttempt, StoredText } from './stored-run.ts'

export interface ExportOptions {
  readonly format: 'jsonl'
  /** Adds `nodes`: every message of the accepted attempt with its token ids and log-probabilities. */
  readonly tokens?: boolean
  /** Adds `taskRow`, the row of the rollout's task, where the run keeps it; true if not given. */
  readonly taskRows?: boolean
  /** Called for each rollout or child that cannot be read. An object of kind `damaged` stands for it in the export, too. */
  readonly onDamaged?: OnDamaged
}

type OnDamaged = (rollout: string, error: MillraceError) => void

/** One finished rollout a line, with `taskRow` and `childRollouts`. A rollout that cannot be read does not end the export. */
export async function* exportRollouts(reader: RunReader, options: ExportOptions): AsyncGenerator<string, void, void> {
  const { onDamaged, taskRows = true } = options
  const form = options.tokens ? 'numbers' : undefined
  const extra = ({ task }: StoredText, record: BareRecord): string => {
    const row = taskRows ? reader.taskRowText(task) : undefined
    const pieces = [...nodeAndChildPieces(reader, record, form, onDamaged)].join('')
    return row === undefined ? pieces : `,"taskRow":${row}${pieces}`
  }
  for (const stored of reader.endedTexts()) yield storedLine(stored, { tasks: reader, extra, onDamaged })
}

/**
 * The part of a rollout's JSON after its messages, in pieces: its nodes, if `form` says how to write their tokens, and its
 * children that have ended, those of children included. A child that cannot be read costs only itself.
 */
export function* nodeAndChildPieces(
  reader: RunReader,
  { id, attempt, children }: BareRecord,
  form: ArrayForm | undefined,
  onDamaged?: OnDamaged,
): Generator<string, void, void> {
  if (form) yield* nodesField(reader.nodes(id, attempt), form)
  if (!children) return
  let separator = ',"childRollouts":['
  for (const child of reader.descendants(id, attempt)) {
    yield separator
    separator = ','
    yield* childPieces(reader, child, form, onDamaged)
  }
  // A fork counts children whose conversations are in another run.
  yield separator === ',' ? ']' : `${separator}]`
}

function* childPieces(
  reader: RunReader,
  { parent, end, ...facts }: EndedAttempt,
  form: ArrayForm | undefined,
  onDamaged: OnDamaged | undefined,
): Generator<string, void, void> {
  const { rollout, attempt } = facts
  let json: string
  let nodes: readonly MessageNode[] | undefined
  try {
    json = JSON.stringify({ ...end.record, parent, messages: reader.conversation(rollout, attempt, end.leaf) })
    nodes = form && reader.nodes(rollout, attempt)
  } catch (error) {
    if (!isDamage(error)) throw error
    onDamaged?.(rollout, error)
    const { outcome, at: endedAt } = end
    yield JSON.stringify({ ...damagedRollout(reader, { ...facts, outcome, reward: null, endedAt }, error), parent })
    return
  }
  yield json.slice(0, -1)
  if (form && nodes) yield* nodesField(nodes, form)
  yield '}'
}

function* nodesField(nodes: readonly MessageNode[], form: ArrayForm): Generator<string, void, void> {
  yield ',"nodes":['
  for (const [index, node] of nodes.entries()) {
    if (index > 0) yield ','
    yield* nodePieces(node, form)
  }
  yield ']'
}

/** How the token arrays of a node are written: as lists of numbers, or their memory as base64, a third of the size. */
type ArrayForm = 'numbers' | 'base64'

function* nodePieces({ tokens, ...node }: MessageNode, form: ArrayForm): Generator<string, void, void> {
  const json = JSON.stringify(node)
  if (!tokens) {
    yield json
    return
  }
  yield `${json.slice(0, -1)},"tokens":{`
  yield* tokenPieces(tokens, form === 'numbers' ? numberPieces : memoryPieces)
  yield '}}'
}

function* tokenPieces(
  { ids, logprobs, promptIds, version, versionSpans, routedExperts }: TokenRecord,
  arrayPieces: (numbers: Int32Array | Float32Array) => Iterable<string>,
): Generator<string, void, void> {
  yield '"ids":'
  yield* arrayPieces(ids)
  yield ',"logprobs":'
  yield* arrayPieces(logprobs)
  if (promptIds) {
    yield ',"promptIds":'
    yield* arrayPieces(promptIds)
  }
  if (version !== undefined) yield `,"version":${JSON.stringify(version)}`
  if (versionSpans) yield `,"versionSpans":${JSON.stringify(versionSpans)}`
  if (routedExperts) {
    // Never as a list of numbers, which would be the longest part by far.
    yield ',"routedExperts":'
    yield* memoryPieces(routedExperts.experts, routedExperts.shape)
  }
}
