import { expect, test } from 'vitest'
import { frameName } from './blocked-thread.ts'

const frame = (functionName: string, url: string, line = 7) => ({ functionName, url, line })
const own = new URL('../async/waiting.ts', import.meta.url).href
const user = 'file:///home/me/my%20env.ts'
const inPackage = 'file:///home/me/node_modules/parser/index.js'
const inNode = 'node:internal/timers'

test('the innermost user function is named, whatever it calls', () => {
  const frames = [frame('read', inNode), frame('parse', inPackage), frame('inner', user, 3), frame('outer', user)]
  expect(frameName([...frames, frame('runRollout', own)])).toBe('inner (/home/me/my env.ts:3)')
})

test('without a user function, a package is named, then Millrace; Node functions are not', () => {
  expect(frameName([frame('run', own), frame('parse', inPackage)])).toBe(
    'parse (/home/me/node_modules/parser/index.js:7)',
  )
  expect(frameName([frame('read', inNode), frame('', own)])).toMatch(/^anonymous \(.*waiting\.ts:7\)$/)
  expect(frameName([frame('read', inNode), frame('', '')])).toBeUndefined()
  expect(frameName([])).toBeUndefined()
})
