import { expect, test } from 'vitest'
import { OfferedTools } from './offered-tools.ts'
import type { ServerTool } from './tool-catalogue.ts'

const tool = (name: string): ServerTool => ({
  server: 'one',
  name,
  inputSchema: {},
  isReadOnly: false,
  isIdempotent: false,
})

test('names in allow and deny are held against the whole list, with what was probably meant', () => {
  const offered = new OfferedTools('one', { allow: ['read', 'web_search'], deny: ['writ', 'zzz'], prefix: 'web_' })
  offered.learn(['read', 'write', 'search'].map(tool))
  expect(offered.catalogue?.unlisted).toEqual([
    { option: 'allow', name: 'web_search', nearest: 'search' },
    { option: 'deny', name: 'writ', nearest: 'write' },
    { option: 'deny', name: 'zzz' },
  ])
})

test('a denied tool that is listed no more is known, though nothing that is offered has changed', () => {
  const offered = new OfferedTools('one', { deny: ['write'] })
  offered.learn([tool('read'), tool('write')])
  const first = offered.catalogue
  expect(first).not.toHaveProperty('unlisted')
  offered.learn([tool('write'), tool('read')])
  expect(offered.catalogue).toBe(first)
  expect(offered.learn([tool('read')])).toBeUndefined()
  expect(offered.catalogue).toMatchObject({ digest: first?.digest, unlisted: [{ option: 'deny', name: 'write' }] })
})
