import { MillraceError } from '../../errors/index.ts'

/** Matches `${NAME}`, `${NAME:-default}`, and `$${`, which stands for a dollar and a brace. */
const reference = /\$\$\{|\$\{([^}]*?)(?::-([^}]*))?\}/g

interface Interpolated {
  /** A copy in which every text has its variables filled in. Keys are left as they are. */
  readonly value: unknown
  /** The values that were filled in: any of them may be secret. */
  readonly filledIn: readonly string[]
}

export function interpolate(value: unknown, env: Variables, file: string): Interpolated {
  const filledIn = new Set<string>()
  const filled = (text: string, path: string): string =>
    text.replaceAll(reference, (_whole, name: string | undefined, otherwise: string | undefined) => {
      if (name === undefined) return '${'
      const found = env[name]
      if (found !== undefined && found !== '') {
        filledIn.add(found)
        return found
      }
      if (otherwise !== undefined) return otherwise
      throw new MillraceError(
        'config_invalid',
        `${file}: ${path} needs the variable ${name}, which is not set: set it, or put it into .env`,
        { data: { variable: name } },
      )
    })
  const walk = (item: unknown, path: string): unknown => {
    if (typeof item === 'string') return filled(item, path)
    if (Array.isArray(item)) return item.map((each, index) => walk(each, `${path}[${index}]`))
    if (item === null || typeof item !== 'object') return item
    return Object.fromEntries(
      Object.entries(item).map(([key, each]) => [key, walk(each, path === '' ? key : `${path}.${key}`)]),
    )
  }
  return { value: walk(value, ''), filledIn: [...filledIn] }
}

/** Environment variables, passed to code that reads keys, proxies or settings from them. */
export type Variables = Readonly<Record<string, string | undefined>>
