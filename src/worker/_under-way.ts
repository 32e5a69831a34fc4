import type { ModelStatus } from '../inference/index.ts'

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
