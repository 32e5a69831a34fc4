import type { ToolFault } from '../schema/index.ts'

/** More kinds than anybody reads; a call that fails in a further kind is counted in `toolErrors` only. */
const maxKinds = 32

/** What tools threw, counted by tool and kind; each kind keeps its first message. */
export class ToolFaults {
  readonly #faults = new Map<string, ToolFault>()

  add(fault: ToolFault): void {
    const key = `${fault.tool} ${fault.kind}`
    const known = this.#faults.get(key)
    if (known) this.#faults.set(key, { ...known, calls: known.calls + fault.calls })
    else if (this.#faults.size < maxKinds) this.#faults.set(key, fault)
  }

  list(): readonly ToolFault[] {
    return [...this.#faults.values()]
  }
}
