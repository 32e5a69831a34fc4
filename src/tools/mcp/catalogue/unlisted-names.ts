import { nearestName } from '../../../kit/index.ts'
import type { ServerOptions } from '../config/server-config.ts'

/** A name in `allow` or `deny` that is no tool of the server: misspelt, or with the prefix under which models see it. */
export interface UnlistedName {
  readonly option: 'allow' | 'deny'
  readonly name: string
  /** The tool that was probably meant, as the server calls it. */
  readonly nearest?: string
}

export function unlistedNames(listed: readonly { readonly name: string }[], options: ServerOptions): UnlistedName[] {
  const known = new Set(listed.map(({ name }) => name))
  return (['allow', 'deny'] as const).flatMap((option) =>
    (options[option] ?? [])
      .filter((name) => !known.has(name))
      .map((name): UnlistedName => {
        const nearest = nearestTool(name, known, options.prefix)
        return nearest === undefined ? { option, name } : { option, name, nearest }
      }),
  )
}

function nearestTool(name: string, known: ReadonlySet<string>, prefix = ''): string | undefined {
  const bare = name.startsWith(prefix) ? name.slice(prefix.length) : name
  return known.has(bare) ? bare : nearestName(bare, known)
}
