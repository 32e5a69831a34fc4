/** A change of a gate, for processes that do not share its memory. */
export interface GateNews {
  readonly backend: number
  /** How long the gate stays closed; undefined if the backend answers again. */
  readonly closedForMs?: number
}

/** From a process to the owner of the limits: the state of one limit there, and what happened since the last message. */
export interface LeaseMessage {
  readonly limit: number
  /** Calls that wait for a permit. */
  readonly wanted: number
  readonly rateWaiting: number
  /** Numbers by backend. */
  readonly inFlight: readonly number[]
  readonly parked: readonly number[]
  /** From here on: what happened since the last message. */
  readonly returned: number
  readonly calls: number
  readonly tries: number
  readonly answered: number
  /** For each refusal that asked for fewer requests, the pause the server asked for. */
  readonly refusals: readonly number[]
  readonly gates: readonly GateNews[]
}

/** From the owner of the limits to a process. */
export interface GrantMessage {
  readonly limit: number
  readonly granted: number
  /** Whether permits are to go back as soon as they are free: others wait, or more are out than may be. */
  readonly isRecalled: boolean
  /** The number of parties that each rate is divided among. */
  readonly parties: number
  readonly gates: readonly GateNews[]
}
