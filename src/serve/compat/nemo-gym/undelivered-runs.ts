import { timerMs } from '../../../kit/index.ts'

/** Somebody who waits for the result of a row. One of the two must be called in the end; what follows does nothing. */
export interface WaitingClient {
  /** The request to make of the service: the same for everybody who waits for this row. */
  readonly requestId: string
  delivered(): void
  left(): void
}

interface UndeliveredRun {
  readonly requestId: string
  readonly onChange: (isUndelivered: boolean) => void
  waiting: number
  timer?: NodeJS.Timeout
}

/**
 * The rows that were asked for and whose results nobody has got yet, by their keys: a client whose connection broke asks again, and
 * joins the rollout that runs or gets its result. After a delivery the same row is a new one. There are as many as clients wait, and
 * those whose last client has left for less than the grace. Of these the next launch knows, and waits for them anew.
 */
export class UndeliveredRuns {
  readonly #runs = new Map<string, UndeliveredRun>()
  readonly #graceMs: number

  constructor(graceMs: number) {
    this.#graceMs = graceMs
  }

  /** `requestId` makes the id of a row that nobody waits for yet. `onChange`: the last client has left, or it is over. */
  wait(key: string, requestId: () => string, onChange: (id: string, isUndelivered: boolean) => void): WaitingClient {
    const run = this.#runs.get(key) ?? newRun(requestId(), onChange)
    this.#runs.set(key, run)
    clearTimeout(run.timer)
    run.waiting += 1
    let isOver = false
    const once = (end: () => void) => () => {
      if (!isOver) end()
      isOver = true
    }
    return {
      requestId: run.requestId,
      delivered: once(() => this.#forget(key, run)),
      left: once(() => this.#leave(key, run)),
    }
  }

  #leave(key: string, run: UndeliveredRun): void {
    run.waiting -= 1
    if (run.waiting > 0) return
    run.onChange(true)
    run.timer = setTimeout(() => this.#forget(key, run), timerMs(this.#graceMs)).unref()
  }

  #forget(key: string, run: UndeliveredRun): void {
    clearTimeout(run.timer)
    run.onChange(false)
    if (this.#runs.get(key) === run) this.#runs.delete(key)
  }
}

function newRun(id: string, onChange: (id: string, isUndelivered: boolean) => void): UndeliveredRun {
  return { requestId: id, waiting: 0, onChange: (isUndelivered) => onChange(id, isUndelivered) }
}
