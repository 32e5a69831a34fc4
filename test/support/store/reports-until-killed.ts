import { expect } from 'vitest'
import { startChild } from './child-process.ts'

/** What a child reports that is killed once it has reported so much: what it still said before it died counts as well. */
export async function reportsUntilKilled(module: URL, args: readonly string[], count: number): Promise<string[]> {
  const reports: string[] = []
  await using child = startChild(module, args)
  for await (const line of child.lines) {
    reports.push(line)
    if (reports.length === count) child.process.kill('SIGKILL')
  }
  expect(reports.length, child.errors()).toBeGreaterThanOrEqual(count)
  return reports
}
