/**
 * Whether the rollout that holds a session has told its server anything, so that a restart would lose it. A call that is made
 * again on the next connection has told nothing yet.
 */
export class SessionHold {
  /** The newest connection on which a call may have run. */
  #toldGeneration: number | undefined

  /** Whether a restart now would make the server forget something. */
  get hasToldAnything(): boolean {
    return this.#toldGeneration !== undefined
  }

  /** Whether the server behind this connection does not know what an earlier one was told. */
  isForgottenBy(generation: number): boolean {
    return this.#toldGeneration !== undefined && generation > this.#toldGeneration
  }

  /** A call that may have run on this connection has ended. */
  tell(generation: number): void {
    // A call may end on an older connection after others have ended on the next.
    if (this.#toldGeneration === undefined || generation > this.#toldGeneration) this.#toldGeneration = generation
  }
}
