import { isJsonObject } from '../../../schema/index.ts'

/** Without those that say `disabled`. Nothing else of these is looked at: what they need may be missing. */
export function enabledServers<Entry>(servers: Readonly<Record<string, Entry>>): Record<string, Entry> {
  return Object.fromEntries(
    Object.entries(servers).filter(([, entry]) => !isJsonObject(entry) || entry['disabled'] !== true),
  )
}
