import { spoolDamages, type RunStore } from '../../store/index.ts'

/** What was lost of what the sitting before this one wrote down last, whoever brought in the rest. */
export function spoolNotices({ reader, run }: Pick<RunStore, 'reader' | 'run'>): string[] {
  const before = run.sittings.at(-2)
  return spoolDamages(reader, Date.parse(before?.endedAt ?? before?.startedAt ?? run.createdAt))
}
