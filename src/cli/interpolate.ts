import { MillraceError } from '../errors/index.ts'

/** `${NAME}`, or `$${` for a dollar and a brace. */
const reference = /\$\$\{|\$\{([^}]*)\}/g

/** A copy in which every text has its variables filled in. Keys are left as they are. */
export function interpolate(value: unknown, env: Readonly<Record<string, string | undefined>>, file: string): unknown {
  const filled = (text: string, path: string): string =>
    text.replaceAll(reference, (_whole, name: string | undefined) => {
      if (name === undefined) return '${'
      const found = env[name]
      if (found !== undefined && found !== '') return found
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
  return walk(value, '')
}
