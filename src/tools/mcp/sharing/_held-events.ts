import type { ServerEvent } from '../session/server-events.ts'

export type ServerEventListener = (event: ServerEvent) => void

/** Where the events of one session go: to the rollout that holds it, and to the owner of all servers while none does. */
export class HeldEvents {
  holder: ServerEventListener | undefined
  readonly #owner: ServerEventListener

  constructor(owner: ServerEventListener, holder?: ServerEventListener) {
    this.#owner = owner
    this.holder = holder
  }

  readonly tell: ServerEventListener = (event) => (this.holder ?? this.#owner)(event)
}
