import { MillraceError } from '../../../errors/index.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'

/** How many problems are shown; more say nothing new. */
const maxShown = 5

/**
 * Checks the names in `allow` and `deny` against the lists of the servers. A misspelt name in `deny` would leave its tool offered
 * without a word, so no rollout begins before all names fit. A server whose list once fitted may change it: that is reported, and
 * stops nobody.
 */
export class NameCheck {
  /** By server, the names that did not fit the last list; an entry exists as soon as one list fitted. */
  readonly #misfits = new Map<string, string>()

  /** Throws `config_invalid` for names that never fitted. Returns those that do not fit any more, once for each list. */
  check(catalogue: ToolCatalogue): readonly string[] {
    const { server, unlisted = [] } = catalogue
    const before = this.#misfits.get(server)
    if (before === undefined) refuseUnlisted(catalogue)
    const names = unlisted.map(({ name }) => name)
    const misfits = JSON.stringify(names)
    if (misfits === before) return []
    this.#misfits.set(server, misfits)
    return names
  }
}

/** Throws `config_invalid` if a name in `allow` or `deny` is not a tool of the server. */
export function refuseUnlisted({ server, unlisted }: ToolCatalogue): void {
  if (!unlisted) return
  const problems = unlisted.slice(0, maxShown).map(({ option, name, nearest }) => {
    const hint = nearest === undefined ? '' : `; did you mean "${nearest}"?`
    return `"${option}" names "${name}", which the server does not list${hint}`
  })
  const more = unlisted.length > maxShown ? `; and ${unlisted.length - maxShown} more` : ''
  throw new MillraceError(
    'config_invalid',
    `the tool server "${server}": ${problems.join('; ')}${more} (tools go by their names on the server, without its prefix; ` +
      'with "allow" and "deny" left out, `millrace tools list` shows them all)',
    { data: { server, tool: unlisted[0]?.name } },
  )
}
