/** What a simulator's server has done so far. */
export interface SimulatorStats {
  readonly requests: number
  readonly inFlight: number
  /** The client went away before its answer was complete. */
  readonly aborted: number
  readonly byStatus: Readonly<Record<string, number>>
}
