import type { Evaluation } from '../../../eval/index.ts'
import { formatDuration } from '../../format/duration.ts'
import { startupText } from './startup-text.ts'

const firstMs = 2000
const intervalMs = 10_000

/**
 * Says what a slow start of a run is busy with, if there is no live view to show it. The timer does not keep the process
 * alive: a start that waits for nothing must be noticed.
 */
export class StartupNotice implements Disposable {
  readonly #evaluation: Evaluation
  readonly #show: (text: string) => void
  #timer: NodeJS.Timeout

  constructor(evaluation: Evaluation, show: (text: string) => void) {
    this.#evaluation = evaluation
    this.#show = show
    this.#timer = setTimeout(this.#tick, firstMs).unref()
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
  }

  readonly #tick = (): void => {
    const progress = this.#evaluation.progress()
    this.#show(`${startupText(progress)}… (${formatDuration(progress.elapsedMs)})`)
    this.#timer = setTimeout(this.#tick, intervalMs).unref()
  }
}
