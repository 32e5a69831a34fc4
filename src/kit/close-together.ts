/** Closes resources at once that do not depend on each other. All are tried; failures are thrown together at the end. */
export async function closeTogether(resources: Iterable<{ close(): Promise<void> }>): Promise<void> {
  const ends = await Promise.allSettled(Array.from(resources, (resource) => resource.close()))
  const failures = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []))
  if (failures.length === 1) throw failures[0]
  if (failures.length > 1) throw new AggregateError(failures, 'several parts failed to close')
}
