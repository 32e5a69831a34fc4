import type { BackendStatus, LimitStatus, ModelStatus } from '../inference/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'

/** The limits know only how many permits are leased to a worker, which is more than it uses. */
export function reportedModel({ name, limit }: LimitStatus, reports: readonly ModelStatus[]): ModelStatus {
  let [inFlight, waiting, parked, probing, calls, tries] = [0, 0, 0, 0, 0, 0]
  let parkedBecause: string | undefined
  for (const report of reports) {
    if (report.name !== name) continue
    inFlight += report.inFlight
    waiting += report.waiting
    parked += report.parked
    probing += report.probing ?? 0
    // Reported before a worker's last answer; the shared limits may know of them a second late.
    calls += report.calls
    tries += report.tries
    // Only the worker in which a call failed knows why.
    parkedBecause ??= report.parkedBecause
  }
  const backends = backendsTogether(reports.filter((report) => report.name === name))
  return {
    name,
    limit,
    inFlight,
    waiting,
    parked,
    ...(probing > 0 && { probing }),
    ...(parked > 0 && parkedBecause !== undefined && { parkedBecause }),
    calls,
    tries,
    ...(backends.length > 0 && { backends }),
  }
}

/** Each worker counts what it sends itself, and finds out by itself which backends fail. */
function backendsTogether(reports: readonly ModelStatus[]): readonly BackendStatus[] {
  const known = new Map<string, BackendStatus>()
  for (const backend of reports.flatMap(({ backends = [] }) => backends)) {
    const other = known.get(backend.name)
    known.set(backend.name, {
      ...backend,
      inFlight: backend.inFlight + (other?.inFlight ?? 0),
      contextTokens: backend.contextTokens + (other?.contextTokens ?? 0),
      sessions: backend.sessions + (other?.sessions ?? 0),
      affinityBreaks: backend.affinityBreaks + (other?.affinityBreaks ?? 0),
      weight: Math.min(backend.weight, other?.weight ?? 1),
    })
  }
  return [...known.values()]
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
