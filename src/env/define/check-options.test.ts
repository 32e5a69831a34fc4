import { expect, test } from 'vitest'
import { commandReward } from '../rewards/command-reward.ts'
import { csv } from '../tasks/csv.ts'
import { offload } from '../rewards/reward.ts'
import { judge } from '../rewards/judge.ts'
import { keepToolResults } from '../context/keep-tool-results.ts'
import { summariseContext } from '../context/summarise-context.ts'

// As Node runs a module: without its types.
const untyped = (options: object): never => options as never

test.each([
  [() => judge(untyped({ rubrik: 'Is it polite?' })), 'judge(): `rubrik` is not known; did you mean `rubric`?'],
  [() => judge({ threshold: 2 }), 'judge(): threshold: must be a number between 0 and 1, not 2'],
  [() => judge({ threshold: Number.NaN }), 'judge(): threshold: must be a number between 0 and 1, not NaN'],
  [
    () => commandReward(untyped({ command: ['true'], timeout: 1 })),
    'commandReward(): `timeout` is not known; did you mean `timeoutMs`?',
  ],
  [() => commandReward(untyped({ command: 'python3 score.py' })), "command: must be a list: ['python3', 'score.py']"],
  [
    () => commandReward({ command: ['true'], maxConcurrency: Infinity }),
    'commandReward(): maxConcurrency: must be a whole number from 1 on, not Infinity',
  ],
  [() => commandReward({ command: ['true'], maxConcurrency: 0 }), 'must be a whole number from 1 on, not 0'],
  [
    () => commandReward({ command: ['true'], timeoutMs: -1 }),
    'commandReward(): timeoutMs: must be a number above 0, not -1',
  ],
  [() => offload(() => 1, untyped({ timeout: 1 })), 'offload(): `timeout` is not known; did you mean `timeoutMs`?'],
  [() => csv('rows.csv', untyped({ delimeter: ';' })), 'csv(): `delimeter` is not known; did you mean `delimiter`?'],
  [() => keepToolResults(3, untyped({ stubb: '' })), 'keepToolResults(): `stubb` is not known; did you mean `stub`?'],
  [
    () => summariseContext(untyped({ whenTokens: 9, keepLast: 1, promt: '' })),
    'summariseContext(): `promt` is not known; did you mean `prompt`?',
  ],
])('%s is refused', (make, message) => {
  expect(make).toThrow(message)
})
