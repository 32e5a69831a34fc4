import { readFileSync } from 'node:fs'

let known: string | undefined

/** The version of this package. */
export function packageVersion(): string {
  known ??= readVersion()
  return known
}

function readVersion(): string {
  // package.json is as far up from `dist` as from `src`.
  const file = readFileSync(new URL('../../package.json', import.meta.url), 'utf8')
  return (JSON.parse(file) as { version: string }).version
}
