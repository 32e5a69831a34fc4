/** A few are enough to refuse a request with; what a body has beyond them is not listed. */
const maxNames = 16

/** The same for a name, of which a part may be the client's. */
const maxNameChars = 120

/** Collects the names of what only the client's API can say. */
export class Untranslatable {
  readonly names: string[] = []
  /** Those among them that stand for a part of the conversation which only the provider has. */
  readonly held: string[] = []

  add(name: string): void {
    addTo(this.names, name)
  }

  addHeld(name: string): void {
    this.add(name)
    addTo(this.held, name)
  }
}

function addTo(names: string[], name: string): void {
  if (names.length < maxNames) names.push(name.slice(0, maxNameChars))
}
