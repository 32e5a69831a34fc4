/** How many names a label may have; later ones count as `other`. Together these limits bound the number of series. */
const maxNames: Readonly<Record<string, number>> = {
  tool: 64,
  environment: 32,
  model: 32,
  backend: 64,
  pool: 16,
  worker: 256,
}

const maxLength = 100

/** Stands for all names that have no series of their own. */
export const otherName = 'other'

/**
 * Keeps the number of series bounded whatever names users and models come up with. Labels that are not listed take their values
 * from closed sets.
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
