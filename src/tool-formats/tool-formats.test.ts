import { describe, expect, test } from 'vitest'
import { seededRandom } from '../kit/index.ts'
import type { Json } from '../schema/index.ts'
import { writeCalls, type PlannedCall } from '../../test/support/tools/write-calls.ts'
import { toolFormatNames } from './tool-format.ts'
import { toolFormatOf, toolFormats } from './tool-formats.ts'

const planned = (name: string, args: Record<string, Json> = {}): PlannedCall => ({ name, server: 's', arguments: args })

describe.each(toolFormatNames)('%s', (formatName) => {
  const format = toolFormats[formatName]
  const write = (...calls: readonly PlannedCall[]) => writeCalls[formatName](calls)
  const names = (text: string) => format.parse(text, 'c').map((call) => call.function.name)
  const real = write(planned('real', { a: 1 }))
  const quoted = write(planned('quoted'))

  test('is found by its name', () => {
    expect(format.name).toBe(formatName)
    expect(toolFormatOf(formatName)).toBe(format)
  })

  describe('ignores calls within reasoning', () => {
    test.each([
      ['a thought', `<think>Perhaps\n${quoted}\n</think>\n${real}`],
      ['one that began in the prompt', `Perhaps\n${quoted}\n</think>\n${real}`],
      ['one with no space behind it', `<think>${quoted}</think>${real}`],
      ['two thoughts', `<think>\n${quoted}</think>${quoted}<think>\n${quoted}\n</think>\n${real}`],
      ['a long name', `<thinking>\n${quoted}\n</thinking>\n${real}`],
      ['capitals', `<Think>\n${quoted}\n</THINK>\n${real}`],
      ['space in the tag', `<think >\n${quoted}\n</think\n>\n${real}`],
      ['a call that was broken off', `${real.slice(0, -4)}\n</think>\n${real}`],
      ['a string that was broken off', `${real.slice(0, -4)} "\n</think>\n${real}`],
      ['one that does not end', `${real}\n<think>\n${quoted}`],
      ['a name that is not closed', `${real}\n<thinking>\n${quoted}`],
    ])('%s', (_, text) => {
      expect(names(text)).toEqual(['real'])
    })

    test.each(['<think>', 'no end </think>', `<think>\n${quoted}`, `${quoted}</think>`])(
      'no call is read in %s',
      (text) => {
        expect(names(text)).toEqual([])
      },
    )
  })

  test('a reasoning tag in an argument is text', () => {
    const args = { a: '</think>', b: ['<think>'] }
    const calls = format.parse(write(planned('f', args), planned('g')), 'c')
    expect(calls.map((call) => call.function.name)).toEqual(['f', 'g'])
    expect(JSON.parse(calls[0]?.function.arguments ?? '')).toEqual(args)
  })

  test('ids consist of the base and the position', () => {
    const calls = format.parse(write(planned('f'), planned('f'), planned('g')), 'call_7')
    expect(calls.map(({ id }) => id)).toEqual(['call_7_0', 'call_7_1', 'call_7_2'])
  })

  test('describes the same tools in the same words, and each tool once', () => {
    const tools = ['alpha', 'beta'].map((name) => ({
      definition: { type: 'function' as const, function: { name, description: `It is ${name}.`, parameters: {} } },
    }))
    const text = format.describe(tools)
    expect(text).toBe(format.describe(structuredClone(tools)))
    expect(text.split('It is alpha.')).toHaveLength(2)
    expect(text.indexOf('alpha')).toBeLessThan(text.indexOf('beta'))
  })

  test('random calls are read back as written', () => {
    const random = seededRandom(7)
    for (let round = 0; round < 300; round += 1) {
      const calls = Array.from({ length: Math.floor(random() * 4) }, () => randomCall(random))
      const read = format.parse(write(...calls), 'r')
      calls.forEach(({ name, server, arguments: args }, index) => {
        expect(read[index]?.server).toBe(formatName === 'mcp-xml' ? server : undefined)
        expect(read[index]?.function).toEqual({ name, arguments: JSON.stringify(args) })
      })
      expect(read).toHaveLength(calls.length)
    }
  })

  test('randomly broken replies are read without an error', () => {
    const random = seededRandom(11)
    for (let round = 0; round < 1000; round += 1) {
      const pieces = Array.from({ length: Math.floor(random() * 30) }, () => {
        const piece = random() < 0.3 ? real : (awkward[Math.floor(random() * awkward.length)] ?? '')
        return piece.slice(0, Math.ceil(random() * 2 * piece.length))
      })
      const calls = format.parse(pieces.join(''), 'c')
      expect(calls.map(({ id }) => id)).toEqual(calls.map((_, index) => `c_${index}`))
    }
  })

  test('very deep nesting is read', () => {
    const depth = 50_000
    const deep = '['.repeat(depth)
    const whole = write(planned('f', { a: 'DEEP' })).replace(/["']DEEP["']/, `${deep}${']'.repeat(depth)}`)
    expect(format.parse(whole, 'c')).toMatchObject([
      { function: { name: 'f', arguments: `{"a":${deep}${']'.repeat(depth)}}` } },
    ])
    const cutOff = whole.slice(0, depth)
    expect(names(cutOff)).toEqual(['f'])
  })
})

test('an unknown format is refused with a list of the known ones', () => {
  expect(() => toolFormatOf('xml')).toThrow(
    expect.objectContaining({
      code: 'config_invalid',
      message: expect.stringContaining('mcp-xml, hermes, llama, pythonic'),
    }),
  )
})

/** What formats trip over, whole and in halves. */
const awkward = [
  '</think>',
  '<think>',
  '<tool_call>',
  '</tool_call>',
  '<use_mcp_tool>',
  '</arguments>',
  '</use_mcp_tool>',
  '<|python_tag|>',
  '<function=f>',
  '</function>',
  '```json',
  '; {"name": "no", "parameters": {}}',
  '\n[no(a=1)]\n',
  '"""',
  "'''",
  '"',
  "'",
  '\\',
  '\\"',
  '\n',
  '{',
  '}',
  '[',
  ']',
  '(',
  ')',
  ',',
  ':',
  '<',
  '😀',
  '\u0007',
  'words and words ',
]

function randomCall(random: () => number): PlannedCall {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] ?? from[0]!
  const text = () => Array.from({ length: Math.floor(random() * 6) }, () => pick(awkward)).join('')
  const value = (depth: number): Json => {
    const kind = Math.floor(random() * (depth > 3 ? 4 : 6))
    if (kind === 0) return pick([null, true, false])
    if (kind === 1) return pick([0, -1, 1.5, -2e-7, 1e21, 12_345])
    if (kind < 4) return text()
    const size = Math.floor(random() * 4)
    if (kind === 4) return Array.from({ length: size }, () => value(depth + 1))
    return Object.fromEntries(Array.from({ length: size }, (_, index) => [`k${index}${text()}`, value(depth + 1)]))
  }
  const size = Math.floor(random() * 4)
  const args = Array.from(
    { length: size },
    (_, index) => [`${pick(['a', 'key-', 'with space'])}${index}`, value(0)] as const,
  )
  return {
    name: pick(['search', 'read_file', 'fs-read', 'Go2']),
    server: pick(['s', 'search-and-scrape', 'my server']),
    arguments: Object.fromEntries(args),
  }
}
