/** Closes resources in reverse order of opening. All are tried; failures are thrown together at the end. */
export async function closeAll(resources: readonly (AsyncDisposable | undefined)[]): Promise<void> {
  const failures: unknown[] = []
  for (const resource of resources.toReversed()) {
    if (!resource) continue
    try {
      await resource[Symbol.asyncDispose]()
    } catch (error) {
      failures.push(error)
    }
  }
  if (failures.length === 1) throw failures[0]
  if (failures.length > 1) throw new AggregateError(failures, 'several parts failed to close')
}
