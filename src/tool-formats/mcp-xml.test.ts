import { describe, expect, test } from 'vitest'
import { briefCalls } from '../../test/support/tools/brief-calls.ts'
import { mcpXml } from './mcp-xml.ts'

const calls = (text: string) => briefCalls(mcpXml, text)

const block = (server: string, tool: string, args: string) =>
  `<use_mcp_tool>\n<server_name>${server}</server_name>\n<tool_name>${tool}</tool_name>\n<arguments>\n${args}\n</arguments>\n</use_mcp_tool>`

describe('reads', () => {
  test('a call within prose, with its arguments as written', () => {
    const args = '{ "path" :  "/tmp/a\\n",\n  "n": 1.50 }'
    expect(calls(`I will look.\n\n${block('fs', 'read_file', args)}\n`)).toEqual([['fs', 'read_file', args]])
  })

  test('several calls, with repeated ones, and ids by position', () => {
    const text = [block('a', 'x', '{}'), block('b', 'y', '{"n":1}'), block('a', 'x', '{}')].join('\n')
    expect(mcpXml.parse(text, 'turn3')).toEqual([
      { id: 'turn3_0', type: 'function', server: 'a', function: { name: 'x', arguments: '{}' } },
      { id: 'turn3_1', type: 'function', server: 'b', function: { name: 'y', arguments: '{"n":1}' } },
      { id: 'turn3_2', type: 'function', server: 'a', function: { name: 'x', arguments: '{}' } },
    ])
  })

  test.each([
    ['swapped', '<arguments>{"a":1}</arguments><tool_name>t</tool_name><server_name>s</server_name>'],
    ['in capitals', '<SERVER_NAME>s</SERVER_NAME><Tool_Name>t</Tool_Name><ARGUMENTS>{"a":1}</ARGUMENTS>'],
    [
      'spread out',
      '\n\n <server_name>\n s </server_name>\n<tool_name > t\n</tool_name >\n\n<arguments> {"a":1}\n</arguments>',
    ],
  ])('parts that are %s', (_, parts) => {
    expect(calls(`<use_mcp_tool>${parts}</use_mcp_tool>`)).toEqual([['s', 't', '{"a":1}']])
  })

  test('a call without a server', () => {
    const text = '<use_mcp_tool><tool_name>t</tool_name><arguments>{}</arguments></use_mcp_tool>'
    expect(calls(text)).toEqual([['t', '{}']])
  })

  test('no call in a reply without calls', () => {
    expect(calls('')).toEqual([])
    expect(calls('A < B, <b>bold</b>, </use_mcp_tool> <tool_name>t</tool_name>')).toEqual([])
  })
})

describe('accepts', () => {
  const whole = block('s', 't', '{"a":1}')

  test.each([
    ['</use_mcp_tool>', whole.replace('\n</use_mcp_tool>', '')],
    ['the last two closing tags', whole.replace('\n</arguments>\n</use_mcp_tool>', '')],
    ['</arguments>', whole.replace('\n</arguments>', '')],
    ['</tool_name>', whole.replace('</tool_name>', '')],
    ['</server_name> and </tool_name>', whole.replace('</server_name>', '').replace('</tool_name>', '')],
  ])('a missing %s', (_, text) => {
    expect(calls(text)).toEqual([['s', 't', '{"a":1}']])
    expect(calls(`${text}\n${whole}`)).toEqual([
      ['s', 't', '{"a":1}'],
      ['s', 't', '{"a":1}'],
    ])
  })

  test('prose after an unclosed call', () => {
    expect(calls(`${whole.replace('\n</arguments>\n</use_mcp_tool>', '')}\n\nNow I wait.`)).toEqual([
      ['s', 't', '{"a":1}'],
    ])
  })
})

describe('from a broken block', () => {
  test.each([
    ['the arguments are cut off', '<use_mcp_tool><tool_name>t</tool_name><arguments>{"a": "b', [['t', '{"a": "b']]],
    ['the tool is not named', '<use_mcp_tool><arguments>{}</arguments></use_mcp_tool>', [['', '{}']]],
    ['nothing is there', '<use_mcp_tool>', [['', '']]],
    [
      'the arguments are not JSON',
      '<use_mcp_tool><tool_name>t</tool_name><arguments>a: b</arguments>',
      [['t', 'a: b']],
    ],
    [
      'something follows the value',
      '<use_mcp_tool><tool_name>t</tool_name><arguments>{"a":1}} x</arguments></use_mcp_tool>',
      [['t', '{"a":1}} x']],
    ],
  ])('%s: the readable part', (_, text, expected) => {
    expect(calls(text)).toEqual(expected)
  })

  test.each([
    '<use_mcp_tool>',
    '<use_mcp_tool><tool_name>t',
    '<use_mcp_tool><tool_name>t</tool_name><arguments>{"a": "b',
  ])('%s does not include the next call', (broken) => {
    const found = calls(`${broken}\n${block('s', 'next', '{"q":"x"}')}`)
    expect(found).toHaveLength(2)
    expect(found[1]).toEqual(['s', 'next', '{"q":"x"}'])
  })
})

test('a call quoted in an argument is not read as a call', () => {
  const args = JSON.stringify({
    text: block('other', 'tool', '{}'),
    end: '</arguments></use_mcp_tool>',
    think: '</think>',
  })
  expect(calls(`${block('s', 't', args)}\n${block('s', 'u', '{}')}`)).toEqual([
    ['s', 't', args],
    ['s', 'u', '{}'],
  ])
})

test('describes tools by server, and says how to call them', () => {
  const parameters = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
  const tool = (name: string) =>
    ({ type: 'function', function: { name, description: `Does ${name}.`, parameters } }) as const
  const text = mcpXml.describe([
    { definition: tool('fs_read'), server: 'fs', serverToolName: 'read' },
    { definition: tool('submit') },
    { definition: tool('fs_write'), server: 'fs', serverToolName: 'write' },
  ])
  expect(text).toContain(
    `## Server fs\n\n### Tool read\nDoes fs_read.\nArguments: ${JSON.stringify(parameters)}\n\n### Tool write\n`,
  )
  expect(text).toContain('## Without a server\n\n### Tool submit\n')
  expect(text).toContain('Leave out the line with the server')
  expect(mcpXml.describe([{ definition: tool('read'), server: 'fs' }])).not.toContain('Leave out')
  // The example in the description is itself a call of this format.
  expect(calls(text)).toEqual([['the server', 'the tool', '{"parameter": "value"}']])
})

test('writes results with their server and their failure', () => {
  const [call] = mcpXml.parse(block('fs', 'read', '{}'), 'c')
  if (!call) throw new Error('no call')
  expect(mcpXml.result(call, 'text', false)).toBe('Result of read on fs:\ntext')
  expect(mcpXml.result(call, 'Error: gone', true)).toBe('Failed call of read on fs:\nError: gone')
})
