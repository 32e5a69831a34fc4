/**
 * What the rollout that holds a session has told its server: whether a restart costs it anything. A call that is made again
 * on the next connection has told nothing yet.
 */
export class SessionHold {
  /** The newest connection on which a call may have run. */
  #toldGeneration: number | undefined

  /** Whether a server that was restarted now would have forgotten something. */
  get hasToldAnything(): boolean {
    return this.#toldGeneration !== undefined
  }

  /** Whether the server behind this connection does not know what an earlier one was told. */
  isForgottenBy(generation: number): boolean {
    return this.#toldGeneration !== undefined && generation > this.#toldGeneration
  }

  /** A call has ended that may have run there. */
  tell(generation: number): void {
    // One may end on an older connection after others have ended on the next.
    if (this.#toldGeneration === undefined || generation > this.#toldGeneration) this.#toldGeneration = generation
  }
}
