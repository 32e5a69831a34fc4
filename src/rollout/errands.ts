import { MillraceError } from '../errors/index.ts'
import { AbortScope, ArraySet } from '../kit/index.ts'

/** What others were asked to do and have not answered yet. All errands end with the one who asked, awaited or not. */
export class Errands {
  /** Made with the first errand: most agents have none. */
  #underWay: ArraySet<AbortScope> | undefined
  #isOver = false

  /** Runs the errand under a signal of its own, below the given one. */
  async run<Result>(signal: AbortSignal, errand: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    using scope = new AbortScope(signal)
    // Code that nobody waits for may still ask after the end; its errand is given up at once.
    if (this.#isOver) scope.abort(givenUp())
    const underWay = (this.#underWay ??= new ArraySet())
    underWay.add(scope)
    try {
      return await errand(scope.signal)
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
