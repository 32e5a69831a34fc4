import { MillraceError } from '../errors/index.ts'
import { AbortScope, ArraySet } from '../kit/index.ts'

/** What children and judges were asked for and have not answered yet. All requests end with the one who asked, awaited or not. */
export class PendingRequests {
  /** Made with the first request: most agents have none. */
  #underWay: ArraySet<AbortScope> | undefined
  #isOver = false

  /** Makes the request under a signal of its own, below the given one. */
  async run<Result>(signal: AbortSignal, ask: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    using scope = new AbortScope(signal)
    // Code that nobody waits for may still ask after the end; its request is given up at once.
    if (this.#isOver) scope.abort(givenUp())
    const underWay = (this.#underWay ??= new ArraySet())
    underWay.add(scope)
    try {
      return await ask(scope.signal)
    } finally {
      underWay.delete(scope)
    }
  }

  giveUp(): void {
    for (const scope of this.#underWay ?? []) scope.abort(givenUp())
  }

  /** Nothing can be asked for any more. */
  close(): void {
    this.#isOver = true
    this.giveUp()
  }
}

function givenUp(): MillraceError {
  return new MillraceError('cancelled', 'the one who asked for it has ended')
}
