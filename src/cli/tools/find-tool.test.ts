import { describe, expect, it } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { findTool, serverIn } from './_find-tool.ts'

const tools = [
  { server: 'web', name: 'search' },
  { server: 'files', name: 'search' },
  { server: 'files', name: 'read.file' },
]

const here = { failures: [], program: 'npx millrace' }

describe('findTool', () => {
  it('finds by name and by server and name', () => {
    expect(findTool('read.file', tools, here)).toBe(tools[2])
    expect(findTool('files.search', tools, here)).toBe(tools[1])
    expect(findTool('files.read.file', tools, here)).toBe(tools[2])
  })

  it.each([
    ['search', 'several servers have a tool "search"; say which: web.search or files.search'],
    ['serch', 'there is no tool "serch"; did you mean search?'],
    ['web.serch', 'there is no tool "web.serch"; did you mean web.search?'],
    ['fly', 'there is no tool "fly"; npx millrace tools list shows what there is'],
  ])('refuses %s', (wanted, message) => {
    expect(() => findTool(wanted, tools, here)).toThrow(message)
  })

  it('takes a server that did not open for the one that has it, unless another has nearly that', () => {
    const failure = new MillraceError('tool_infra', 'it is down')
    expect(() => findTool('fly', tools, { ...here, failures: [failure] })).toThrow(failure)
    expect(() => findTool('serch', tools, { ...here, failures: [failure] })).toThrow('did you mean search?')
  })
})

describe('serverIn', () => {
  it('knows a server by the beginning of a name', () => {
    expect(serverIn('web.search', ['we', 'web'])).toBe('web')
    expect(serverIn('search', ['web'])).toBeUndefined()
    expect(serverIn('read.file', ['web'])).toBeUndefined()
  })
})
