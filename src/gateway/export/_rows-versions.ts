import type { TokenRecord } from '../../schema/index.ts'

/** A number of consecutive tokens of one weight version; null if it is not known or nothing was sampled. */
export interface VersionRun {
  readonly version: string | null
  readonly count: number
}

/** The versions of a reply's tokens; the counts add up to their number. */
export function versionRuns({ ids, version, versionSpans }: TokenRecord): VersionRun[] {
  const spans = versionSpans ?? [{ from: 0, version: version ?? null }]
  const runs = new RunLengths()
  for (const [index, span] of spans.entries()) {
    const end = Math.min(spans[index + 1]?.from ?? ids.length, ids.length)
    runs.add(span.version, end - span.from)
  }
  return runs.list
}

/** Run-length coding: neighbours of the same version become one run. */
export class RunLengths {
  readonly list: VersionRun[] = []

  add(version: string | null, count: number): void {
    if (count <= 0) return
    const last = this.list.at(-1)
    if (last && last.version === version) this.list[this.list.length - 1] = { version, count: last.count + count }
    else this.list.push({ version, count })
  }
}
