import type { AttemptSpending } from './journalled-spending.ts'
import type { RecordedWork } from './recorded-work.ts'
import { Tally } from './tally.ts'

/** How far an agent came in repeating what earlier sittings recorded of it. */
interface Repetition {
  /** How many messages of its own session. */
  readonly messages: number
  /** Whether the spending on a child of the agent, and on all children below that, is counted: it ran again, or was kept. */
  readonly isCounted: (child: string) => boolean
}

/**
 * Counts what earlier sittings spent on an agent and its children that this sitting has not repeated: an agent that ends earlier
 * than before, or asks other children, has spent it all the same. The agent's own verdicts were counted when it began.
 */
export function countUnrepeated(
  recorded: RecordedWork,
  agent: string,
  { messages, isCounted }: Repetition,
  tally: Tally,
): void {
  countCalls(recorded, agent, tally, messages)
  for (const id of Object.keys(recorded.nodes)) {
    if (!id.startsWith(`${agent}.`) || isCounted(childAbove(id, agent))) continue
    countCalls(recorded, id, tally)
    countVerdicts(recorded, id, tally)
  }
}

/** What earlier sittings spent on an attempt that ends before its agent begins; undefined if there were none. */
export function recordedSpending(recorded: RecordedWork | undefined): AttemptSpending | undefined {
  if (!recorded) return undefined
  const tally = new Tally()
  for (const id of Object.keys(recorded.nodes)) {
    countCalls(recorded, id, tally)
    countVerdicts(recorded, id, tally)
  }
  return { usage: tally.usage, judgeUsage: tally.judgeUsage, cost: tally.costUsd }
}

function countCalls({ nodes }: RecordedWork, id: string, tally: Tally, from = 0): void {
  for (const { call } of nodes[id]?.slice(from) ?? []) if (call) tally.addCall(call, true)
}

function countVerdicts({ judgeCalls }: RecordedWork, id: string, tally: Tally): void {
  for (const verdict of judgeCalls[id] ?? []) tally.addJudgeCall(verdict)
}

/** The child of the agent that a session belongs to, or lies below. */
function childAbove(id: string, agent: string): string {
  const end = id.indexOf('.', agent.length + 1)
  return end < 0 ? id : id.slice(0, end)
}
