/** A few are enough to refuse a request with; what a body has beyond them is not listed. */
const maxNames = 16

/** The same for a name, of which a part may be the client's. */
const maxNameChars = 120

/** Collects the names of what only the client's API can say. */
export class Untranslatable {
  readonly names: string[] = []

  add(name: string): void {
    if (this.names.length < maxNames) this.names.push(name.slice(0, maxNameChars))
  }
}
