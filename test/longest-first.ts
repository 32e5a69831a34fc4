import { BaseSequencer, type TestSpecification } from 'vitest/node'

/** Stories that take longest, by the end of their path. One that started last would run alone while the other cores idle. */
const longest = [
  'test/eval/flat-memory.test.ts',
  'test/workers/faults.test.ts',
  'test/eval/fault-storm.test.ts',
  'test/workers/lifecycle.test.ts',
  'test/eval/kill-and-resume.test.ts',
  'test/package/package.test.ts',
  'test/tools/long-task-killed.test.ts',
  'test/store/leaks.test.ts',
  'test/inference/sampled-exactly.test.ts',
]

/** Vitest starts large files first, which says little about how long they take, and knows no better on a fresh machine. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isLong = ({ moduleId }: TestSpecification): boolean => longest.some((each) => moduleId.endsWith(each))
    return [...sorted.filter(isLong), ...sorted.filter((each) => !isLong(each))]
  }
}
