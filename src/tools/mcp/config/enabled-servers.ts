import { isJsonObject } from '../../../schema/index.ts'

/** The servers without those that say `disabled`. Those are not checked further: variables they need may be missing. */
export function enabledServers<Entry>(servers: Readonly<Record<string, Entry>>): Record<string, Entry> {
  return Object.fromEntries(
    Object.entries(servers).filter(([, entry]) => !isJsonObject(entry) || entry['disabled'] !== true),
  )
}
