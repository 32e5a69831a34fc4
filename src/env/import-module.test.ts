import { expect, test } from 'vitest'
import { importModule } from './_import-module.ts'

test('however many modules are loaded at once, the process is listened to once, and only as long', async () => {
  const listeners = (): number => process.listenerCount('beforeExit')
  const before = listeners()
  const found = Array.from({ length: 12 }, () => importModule(new URL('task-name.ts', import.meta.url)))
  const missing = importModule(new URL('no-such-module.ts', import.meta.url))
  expect(listeners()).toBe(before + 1)
  await expect(missing).rejects.toThrow('no-such-module')
  for (const module of await Promise.all(found)) expect(module).toHaveProperty('taskName')
  expect(listeners()).toBe(before)
})
