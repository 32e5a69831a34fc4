import { describe, expect, it } from 'vitest'
import { MillraceError } from '../../../errors/index.ts'
import { answerText, callArguments, findTool, serverIn } from './call-tool.ts'

const tools = [
  { server: 'web', name: 'search' },
  { server: 'files', name: 'search' },
  { server: 'files', name: 'read.file' },
]

const here = { failures: [], program: 'npx millrace' }

describe('findTool', () => {
  it('finds a tool by name, and by server and name', () => {
    expect(findTool('read.file', tools, here)).toBe(tools[2])
    expect(findTool('files.search', tools, here)).toBe(tools[1])
    expect(findTool('files.read.file', tools, here)).toBe(tools[2])
  })

  it.each([
    ['search', 'several servers have a tool "search"; say which: web.search or files.search'],
    ['serch', 'there is no tool "serch"; did you mean search?'],
    ['web.serch', 'there is no tool "web.serch"; did you mean web.search?'],
    ['fly', 'there is no tool "fly"; npx millrace tools list shows all tools'],
  ])('refuses %s', (wanted, message) => {
    expect(() => findTool(wanted, tools, here)).toThrow(message)
  })

  it('reports a failed server for an unknown tool, unless another name is near', () => {
    const failure = new MillraceError('tool_infra', 'it is down')
    expect(() => findTool('fly', tools, { ...here, failures: [failure] })).toThrow(failure)
    expect(() => findTool('serch', tools, { ...here, failures: [failure] })).toThrow('did you mean search?')
  })
})

describe('serverIn', () => {
  it('recognises a server by the prefix of a name', () => {
    expect(serverIn('web.search', ['we', 'web'])).toBe('web')
    expect(serverIn('search', ['web'])).toBeUndefined()
    expect(serverIn('read.file', ['web'])).toBeUndefined()
  })
})

const schema = { type: 'object', properties: { code: { type: 'string' }, size: { type: 'number' } } }

describe('callArguments', () => {
  it('reads one JSON object', () => {
    expect(callArguments({ json: '{"size": 2, "tags": ["a"]}', pairs: [] }, schema)).toEqual({ size: 2, tags: ['a'] })
  })

  it('reads a value as text if the tool expects text, otherwise as JSON', () => {
    const pairs = ['code=007', 'id=9007199254740992', 'size=7', 'tags=["a"]', 'name=Ann', 'query=a=b', 'empty=']
    expect(callArguments({ json: undefined, pairs }, schema)).toEqual({
      code: '007',
      id: 9007199254740992,
      size: 7,
      tags: ['a'],
      name: 'Ann',
      query: 'a=b',
      empty: '',
    })
  })

  it('gives an empty object without arguments', () => {
    expect(callArguments({ json: undefined, pairs: [] }, schema)).toEqual({})
  })

  it.each([
    ['{"size": 2,}', [], /the arguments are not JSON: .*position 11/],
    ['[1]', [], /the arguments must be a JSON object/],
    ['{}', ['size=1'], /not both/],
    [undefined, ['size'], /--arg size lacks a name or a value/],
    ['{"tags": [9007199254740993]}', [], /tags\[0\]: the number 9007199254740993 cannot be passed on exactly/],
    [undefined, ['size=1e999'], /size: the number 1e999 cannot be passed on exactly/],
    [undefined, ['=5'], /--arg =5 lacks a name or a value/],
  ])('refuses %j %j', (json, pairs, message) => {
    expect(() => callArguments({ json, pairs }, schema)).toThrow(message)
  })
})

describe('answerText', () => {
  it('shows text without control codes', () => {
    expect(answerText('a\nb\u001b[2J\u0007')).toBe('a\nb�')
  })

  it('describes content that is not text', () => {
    const png = Buffer.alloc(3_000).toString('base64')
    const parts = [
      { type: 'text', text: 'two pictures' },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${png}` } },
      { type: 'image_url', image_url: { url: 'https://example.org/a.png' } },
      { type: 'other', api: 'chat', value: { kind: 'sound' } },
    ] as const
    expect(answerText(parts)).toBe(
      'two pictures\n[image image/png, 3.0 kB]\n[image at https://example.org/a.png]\n[{"kind":"sound"}]',
    )
  })
})
