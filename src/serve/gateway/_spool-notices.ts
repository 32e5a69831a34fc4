import { spoolDamaged, spoolDamageText, type RunStore, type SpoolDamage } from '../../store/index.ts'

/** What was lost of what the sitting before this one wrote down last, whoever brought in the rest. */
export function spoolNotices({ reader, run }: Pick<RunStore, 'reader' | 'run'>): string[] {
  const before = run.sittings.at(-2)
  const since = Date.parse(before?.endedAt ?? before?.startedAt ?? run.createdAt)
  const events = Array.from(reader.events(spoolDamaged)).filter(({ at }) => at >= since)
  return events.map(({ data }) => spoolDamageText(data as SpoolDamage))
}
