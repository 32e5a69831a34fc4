import { expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import { ConsecutiveFailures } from './supervision.ts'

const cause = new MillraceError('worker_lost', 'the dog ate it')

test('a number of consecutive failed starts stops the run', () => {
  const failures = new ConsecutiveFailures()
  for (let failed = 0; failed < 4; failed += 1) expect(failures.noteFailedStart(cause)).toBeUndefined()
  failures.noteStart()
  for (let failed = 0; failed < 4; failed += 1) expect(failures.noteFailedStart(cause)).toBeUndefined()
  expect(failures.noteFailedStart(cause)).toMatchObject({
    code: 'worker_lost',
    message: expect.stringMatching(/the dog ate it.*run the same command again/),
  })
})

test('a number of deaths without a finished call between them stops the run', () => {
  const failures = new ConsecutiveFailures()
  for (let deaths = 0; deaths < 19; deaths += 1) expect(failures.noteDeath(cause)).toBeUndefined()
  failures.noteEnd()
  for (let deaths = 0; deaths < 19; deaths += 1) expect(failures.noteDeath(cause)).toBeUndefined()
  expect(failures.noteDeath(cause)).toMatchObject({
    code: 'worker_lost',
    message: expect.stringMatching(/20 workers died.*the dog ate it.*run the same command again/),
  })
})
