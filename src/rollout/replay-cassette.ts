import { MillraceError, type WireError } from '../errors/index.ts'
import type { Tape } from '../inference/index.ts'
import type { ToolRepair } from '../schema/index.ts'
import type { ToolCatalogue, ToolResult, WrittenCall } from '../tools/index.ts'
import type { KeptChildren } from './kept-children.ts'
import type { PaidVerdict } from './recorded-work.ts'
import type { RecordedAnswer } from './replay-servers.ts'
import type { RecordedVerdict } from './replay-verdicts.ts'

/**
 * What a rollout heard from outside, to be heard again: every model reply and tool answer of its own and of its children,
 * and every verdict of a judge. A plain value that goes with the job.
 */
export interface Cassette {
  /** By what a session's id adds to the rollout's: `''` for the rollout's own, `.k3x9` for a child's. */
  readonly tapes: Readonly<Record<string, Tape>>
  /** The figures of the rollout's children, for tool calls that are answered from the recording and do not start them again. */
  readonly children?: KeptChildren
  /** The verdicts in the order they were given. */
  readonly verdicts: readonly RecordedVerdict[]
  /** By session id, the costs of verdicts whose judges were asked again: no other field counts them. */
  readonly superseded?: Readonly<Record<string, readonly PaidVerdict[]>>
  /** What the tool servers offered, for a rollout that does not open them. */
  readonly catalogues?: readonly ToolCatalogue[]
  /** What the tool servers answered to the environment's own code, in order. */
  readonly serverAnswers?: readonly RecordedAnswer[]
  /** The error for anything that was not recorded, such as a child or a verdict. Without it, that is asked live. */
  readonly end?: WireError
}

/** The tape of a session of the rollout; undefined if it is live from its first turn on. */
export function tapeOf(cassette: Cassette | undefined, rollout: string, session: string): Tape | undefined {
  const tape = cassette?.tapes[session.slice(rollout.length)]
  if (tape || !cassette?.end) return tape
  return { nodes: [], end: cassette.end }
}

/** Checks that a recalled answer is one of the called tool: answers are found by place, which may be another tool's. */
export function requireSameTool(call: WrittenCall, recalled: ToolResult | undefined): ToolResult | undefined {
  const { name } = call.function
  if (!recalled || recalled.record.name === name) return recalled
  throw new MillraceError('replay_diverged', `tool ${name} is called where ${recalled.record.name} had been`)
}

/** A recalled answer with the repairs that its call needs now: a replay compares them with the recorded ones. */
export function withRepairs({ message, record }: ToolResult, planned: readonly ToolRepair[]): ToolResult {
  const { repairs: recorded = [], ...bare } = record
  // Whether a call is made twice depends on its first answer, which is not recorded.
  const repairs = [...planned, ...recorded.filter(({ rule }) => rule === 'retry_without')]
  return { message, record: repairs.length > 0 ? { ...bare, repairs } : bare }
}
