import { readFileSync } from 'node:fs'

/** The version of this package. */
export function packageVersion(): string {
  // The package's own file: two folders up from here in the sources and in the build alike.
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  return (JSON.parse(text) as { version: string }).version
}
