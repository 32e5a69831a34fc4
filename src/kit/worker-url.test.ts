import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { workerUrl } from './worker-url.ts'

test('finds the neighbour with the extension of the caller', () => {
  const url = workerUrl(import.meta, './worker-url')
  expect(url.protocol).toBe('file:')
  expect(existsSync(url)).toBe(true)
})

test('follows the build to .js', () => {
  const built = { filename: '/package/dist/store/writer.js', url: 'file:///package/dist/store/writer.js' }
  expect(workerUrl(built as ImportMeta, './_thread').href).toBe('file:///package/dist/store/_thread.js')
})
