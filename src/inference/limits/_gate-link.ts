import { GateCells, phaseOf } from './_gate-cells.ts'
import type { GateNews } from './lease-messages.ts'
import type { BackendCells } from './shared-limits-cells.ts'

/** Keeps the gates of one limit in step between two processes: what happens to a gate on one side is news for the other. */
export class GateLink {
  readonly #gates: readonly GateCells[]
  /** The word of each gate that the other side knows. Both sides begin with open gates. */
  readonly #knownWords: number[]

  constructor(backends: readonly BackendCells[]) {
    this.#gates = backends.map((backend) => new GateCells(backend))
    this.#knownWords = this.#gates.map(() => 0)
  }

  /** The changes that the other side has not been told yet. Probes are each side's own affair. */
  news(): GateNews[] {
    return this.#gates.flatMap((gate, backend) => {
      const { word } = gate
      if (word === this.#knownWords[backend] || phaseOf(word) === 'probing') return []
      this.#knownWords[backend] = word
      return [phaseOf(word) === 'open' ? { backend } : { backend, closedForMs: gate.dueInMs }]
    })
  }

  /** Applies the other side's news. True if a gate has changed here. */
  learn(news: readonly GateNews[]): boolean {
    let hasChanged = false
    for (const { backend, closedForMs } of news) {
      const gate = this.#gates[backend]
      if (!gate) continue
      const { word } = gate
      if (closedForMs === undefined) hasChanged = gate.reopen() || hasChanged
      else hasChanged = (phaseOf(word) === 'open' && gate.close(word, closedForMs)) || hasChanged
      this.#knownWords[backend] = gate.word
    }
    return hasChanged
  }
}
