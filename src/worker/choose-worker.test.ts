import { expect, test } from 'vitest'
import { chooseWorker } from './choose-worker.ts'

interface Parts {
  readonly load?: number
  readonly lagMs?: number
  readonly takesWork?: boolean
  readonly tasks?: readonly number[]
}

const worker = ({ load = 0, lagMs = 0, takesWork = true, tasks = [] }: Parts) => {
  return { load, lagMs, takesWork, worksOn: (task: number) => tasks.includes(task) }
}

test.each<[string, readonly Parts[], number | undefined]>([
  ['nobody', [], undefined],
  ['nobody if none takes work', [{ takesWork: false }], undefined],
  ['the least busy', [{ load: 3 }, { load: 1 }, { load: 2 }], 1],
  ['one that keeps up before one that lags', [{ load: 0, lagMs: 900 }, { load: 50 }], 1],
  [
    'the least busy if all lag',
    [
      { load: 9, lagMs: 900 },
      { load: 5, lagMs: 900 },
    ],
    1,
  ],
  ['the one that is at the same task', [{ load: 0 }, { load: 3, tasks: [7] }], 1],
  ['not if that one is clearly busier', [{ load: 0 }, { load: 5, tasks: [7] }], 0],
  ['clearly means a quarter where many run', [{ load: 100 }, { load: 120, tasks: [7] }], 1],
  ['not if that one lags', [{ load: 0 }, { load: 1, lagMs: 900, tasks: [7] }], 0],
  ['not if that one is silent', [{ load: 9 }, { load: 1, takesWork: false, tasks: [7] }], 0],
])('chooses %s', (_, parts, index) => {
  const workers = parts.map(worker)
  expect(chooseWorker(workers, 7)).toBe(index === undefined ? undefined : workers[index])
})
