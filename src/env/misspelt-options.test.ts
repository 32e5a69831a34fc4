import { expect, test } from 'vitest'
import { commandReward } from './command-reward.ts'
import { csv } from './csv.ts'
import { heavy } from './heavy.ts'
import { judge } from './judge.ts'
import { keepToolResults } from './keep-tool-results.ts'
import { summariseContext } from './summarise-context.ts'

// As Node runs a module: without its types.
const untyped = (options: object): never => options as never

test.each([
  [() => judge(untyped({ rubrik: 'Is it polite?' })), 'judge(): `rubrik` is not known; did you mean `rubric`?'],
  [() => judge({ threshold: 2 }), 'threshold of judge() is 2: give a number between 0 and 1'],
  [() => judge({ threshold: Number.NaN }), 'threshold of judge() is NaN: give a number between 0 and 1'],
  [
    () => commandReward(untyped({ command: ['true'], timeout: 1 })),
    'commandReward(): `timeout` is not known; did you mean `timeoutMs`?',
  ],
  [() => commandReward(untyped({ command: 'python3 score.py' })), "is a list: ['python3', 'score.py']"],
  [
    () => commandReward({ command: ['true'], maxConcurrency: Infinity }),
    '`maxConcurrency` of commandReward() is Infinity: give a whole number from 1 on',
  ],
  [() => commandReward({ command: ['true'], maxConcurrency: 0 }), 'is 0: give a whole number from 1 on'],
  [
    () => commandReward({ command: ['true'], timeoutMs: -1 }),
    'timeoutMs of commandReward() must be a number of more than 0',
  ],
  [() => heavy(() => 1, untyped({ timeout: 1 })), 'heavy(): `timeout` is not known; did you mean `timeoutMs`?'],
  [() => csv('rows.csv', untyped({ delimeter: ';' })), 'csv(): `delimeter` is not known; did you mean `delimiter`?'],
  [() => keepToolResults(3, untyped({ stubb: '' })), 'keepToolResults(): `stubb` is not known; did you mean `stub`?'],
  [
    () => summariseContext(untyped({ whenTokens: 9, keepLast: 1, promt: '' })),
    'summariseContext(): `promt` is not known; did you mean `prompt`?',
  ],
])('%s is refused', (make, message) => {
  expect(make).toThrow(message)
})
