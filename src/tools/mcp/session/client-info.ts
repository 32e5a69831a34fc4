import { readFileSync } from 'node:fs'

let known: { name: string; version: string } | undefined

/** Who we are, as servers are told and some of them log. */
export function clientInfo(): { name: string; version: string } {
  known ??= { name: 'millrace', version: readVersion() }
  return known
}

function readVersion(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return version
}
