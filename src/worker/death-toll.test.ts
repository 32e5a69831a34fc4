import { expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import { DeathToll } from './death-toll.ts'

const cause = new MillraceError('worker_lost', 'the dog ate it')

test('gives up after so many starts in a row that failed', () => {
  const toll = new DeathToll()
  for (let failed = 0; failed < 4; failed += 1) expect(toll.noteFailedStart(cause)).toBeUndefined()
  toll.noteStart()
  for (let failed = 0; failed < 4; failed += 1) expect(toll.noteFailedStart(cause)).toBeUndefined()
  expect(toll.noteFailedStart(cause)).toMatchObject({
    code: 'worker_lost',
    message: expect.stringMatching(/the dog ate it.*run the same again/),
  })
})

test('gives up after so many deaths between which nothing ended', () => {
  const toll = new DeathToll()
  for (let deaths = 0; deaths < 19; deaths += 1) expect(toll.noteDeath(cause)).toBeUndefined()
  toll.noteEnd()
  for (let deaths = 0; deaths < 19; deaths += 1) expect(toll.noteDeath(cause)).toBeUndefined()
  expect(toll.noteDeath(cause)).toMatchObject({
    code: 'worker_lost',
    message: expect.stringMatching(/20 workers died.*the dog ate it.*run the same again/),
  })
})
