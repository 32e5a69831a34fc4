import { expect, test } from 'vitest'
import { serverEnvironment } from './_server-environment.ts'

test('a server gets what it needs to run, and none of our secrets', () => {
  process.env['OPENAI_API_KEY'] = 'secret'
  process.env['LC_TIME'] = 'de_DE'
  const environment = serverEnvironment({ TOKEN: 'its own', HOME: '/srv' })
  expect(environment).toMatchObject({ PATH: process.env['PATH'], LC_TIME: 'de_DE', TOKEN: 'its own', HOME: '/srv' })
  expect(environment).not.toHaveProperty('OPENAI_API_KEY')
})
