/** The number of names that are listed: a few are enough to refuse a request with. */
const maxNames = 16

/** The length at which a name is cut: part of it may be the client's own text. */
const maxNameChars = 120

/** Collects the names of parts and fields that only the client's API knows. */
export class Untranslatable {
  readonly names: string[] = []
  /** The names among them that stand for a part of the conversation which only the provider has. */
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
