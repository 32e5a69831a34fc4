/** Names a label may have; whatever comes after these counts as `other`. Together they bound how many series there are. */
const maxNames: Readonly<Record<string, number>> = {
  tool: 64,
  environment: 32,
  model: 32,
  backend: 64,
  pool: 16,
  worker: 256,
}

const maxLength = 100

/** Stands for everything that has no series of its own. */
export const otherName = 'other'

/**
 * Keeps the number of series bounded whatever names users and models come up with. The labels that are not listed take
 * their values from closed sets.
 */
export class LabelCap {
  readonly #names = new Map<string, Set<string>>()

  admit(label: string, value: string): string {
    const most = maxNames[label]
    if (most === undefined) return value
    const name = value.length > maxLength ? value.slice(0, maxLength) : value
    let names = this.#names.get(label)
    if (!names) this.#names.set(label, (names = new Set()))
    if (names.has(name)) return name
    if (names.size >= most) return otherName
    names.add(name)
    return name
  }
}
