import type { ToolCatalogue } from './tool-catalogue.ts'

/** Few lists of a server differ at the same time; beyond this the oldest are dropped, and count as new when they come again. */
const maxKept = 32

/**
 * Gives equal lists the same identity, whichever session they came from, so that tool boxes and compiled schemas are made once
 * and not for every rollout.
 */
export class KnownCatalogues {
  readonly #byServer = new Map<string, ToolCatalogue[]>()
  readonly #together: (readonly ToolCatalogue[])[] = []

  /** The same array for the same lists. */
  together(catalogues: readonly ToolCatalogue[]): readonly ToolCatalogue[] {
    const known = catalogues.map((catalogue) => this.#known(catalogue))
    const same = this.#together.find(
      (other) => other.length === known.length && other.every((catalogue, index) => catalogue === known[index]),
    )
    return same ?? keep(this.#together, known)
  }

  #known(catalogue: ToolCatalogue): ToolCatalogue {
    const { server, digest } = catalogue
    let ofServer = this.#byServer.get(server)
    if (!ofServer) this.#byServer.set(server, (ofServer = []))
    return ofServer.find((other) => other.digest === digest) ?? keep(ofServer, catalogue)
  }
}

function keep<T>(kept: T[], item: T): T {
  kept.push(item)
  if (kept.length > maxKept) kept.shift()
  return item
}
