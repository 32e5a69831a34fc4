interface Report {
  readonly workers: readonly { readonly header: { readonly threadId: number } }[]
}

// With its network part, a report would ask the name service about every open socket. Node's types do not know the setting.
Object.assign(process.report, { excludeNetwork: true })

/** The ids of the threads that this one started and that have not ended. */
export function runningThreads(): ReadonlySet<number> {
  // `activeResources` would not do: it leaves out threads whose messages nobody listens to.
  const { workers } = process.report.getReport() as unknown as Report
  return new Set(workers.map(({ header }) => header.threadId))
}

/** How many of the threads that were started since then still run. */
export function threadsSince(before: ReadonlySet<number>): number {
  return runningThreads().difference(before).size
}
