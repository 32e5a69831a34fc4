import { expect, test, vi } from 'vitest'
import { serverEnvironment } from './_server-environment.ts'

test('a server gets what it needs to run, and none of our secrets', () => {
  vi.stubEnv('OPENAI_API_KEY', 'secret')
  vi.stubEnv('LC_TIME', 'de_DE')
  const environment = serverEnvironment({ TOKEN: 'its own', HOME: '/srv' })
  expect(environment).toMatchObject({ PATH: process.env['PATH'], LC_TIME: 'de_DE', TOKEN: 'its own', HOME: '/srv' })
  expect(environment).not.toHaveProperty('OPENAI_API_KEY')
  vi.unstubAllEnvs()
})
