import type { ModelStatus } from '../inference/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'

/**
 * The model's status with the calls that worker processes report as under way. The limits know only how many permits are
 * leased to a process, which is more than it uses, and nothing of its probes.
 */
export function withUnderWay(model: ModelStatus, reports: readonly ModelStatus[]): ModelStatus {
  let [inFlight, waiting, parked, probing] = [0, 0, 0, 0]
  for (const report of reports) {
    if (report.name !== model.name) continue
    inFlight += report.inFlight
    waiting += report.waiting
    parked += report.parked
    probing += report.probing ?? 0
  }
  return { ...model, inFlight, waiting, parked, ...(probing > 0 && { probing }) }
}

/** The tool servers of all workers: a server is away if it is away for one of them. */
export function serversTogether(reports: readonly ToolServerStatus[]): readonly ToolServerStatus[] {
  const known = new Map<string, ToolServerStatus>()
  for (const report of reports) {
    const other = known.get(report.server)
    const worse = other && stateOrder.indexOf(other.state) > stateOrder.indexOf(report.state) ? other : report
    const waiting = report.waiting + (other?.waiting ?? 0)
    known.set(report.server, { ...worse, waiting, awayMs: Math.max(report.awayMs, other?.awayMs ?? 0) })
  }
  return [...known.values()]
}

const stateOrder = ['unopened', 'open', 'away'] as const
