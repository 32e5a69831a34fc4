/** The counts of a simulator's server so far. */
export interface SimulatorStats {
  readonly requests: number
  readonly inFlight: number
  /** Requests whose client went away before the answer was complete. */
  readonly aborted: number
  readonly byStatus: Readonly<Record<string, number>>
}
