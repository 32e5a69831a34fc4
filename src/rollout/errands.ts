import { MillraceError } from '../errors/index.ts'
import { AbortScope, Roster } from '../kit/index.ts'

/**
 * What others were asked to do in the name of an agent run and have not answered yet: its children, and questions to judges.
 * It all ends with the one who asked, also if nobody awaits it.
 */
export class Errands {
  readonly #underWay = new Roster<AbortScope>()
  #isOver = false

  /** Under a signal of its own, below the given one. */
  async run<Result>(signal: AbortSignal, errand: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    using scope = new AbortScope(signal)
    // Code that nobody waits for may still ask. It is answered like all that are given up.
    if (this.#isOver) scope.abort(givenUp())
    this.#underWay.add(scope)
    try {
      return await errand(scope.signal)
    } finally {
      this.#underWay.delete(scope)
    }
  }

  giveUp(): void {
    for (const scope of this.#underWay) scope.abort(givenUp())
  }

  /** Nothing can be asked for any more. */
  close(): void {
    this.#isOver = true
    this.giveUp()
  }
}

/** Of all who have asked for nothing until they were over. */
export const closedErrands = new Errands()
closedErrands.close()

function givenUp(): MillraceError {
  return new MillraceError('cancelled', 'the one who asked for it has ended')
}
