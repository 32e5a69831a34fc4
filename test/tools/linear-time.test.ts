import { describe, expect, test } from 'vitest'
import { toolFormatNames } from '../../src/tool-formats/tool-format.ts'
import { toolFormats } from '../../src/tool-formats/tool-formats.ts'

/** Replies made to be read again and again: what is repeated, and what stands before it. */
const hostile: readonly [repeated: string, before?: string][] = [
  ['<'],
  ['</'],
  [' '],
  ['\n'],
  ['\n '],
  ['<think>'],
  ['</think>'],
  ['<think'],
  ['<think '],
  ['<tool_call>'],
  ['<tool_call>{'],
  ['<tool_call>{"a":"'],
  ['<tool_call>["",'],
  ['<tool_call>["\\"'],
  ['<tool_call>{"a":"\\', '<tool_call>{"b":"'],
  ['<tool_call>{"name":"f","arguments":{"a":"b'],
  ['<tool_call> ', '<tool_call>{"a":"'],
  ['</tool_call>'],
  ["<tool_call>{'a':'"],
  ['<use_mcp_tool>'],
  ['<use_mcp_tool><arguments>{"a":"'],
  ['<use_mcp_tool><tool_name>'],
  ['<arguments>', '<use_mcp_tool>'],
  ['</arguments>', '<use_mcp_tool><arguments>{"a":"'],
  ['<use_mcp_tool><arguments>["', '<use_mcp_tool><arguments>"'],
  ['<|python_tag|>'],
  ['<|python_tag|>{'],
  ['<|python_tag|>{"name":"'],
  ['<function='],
  ['<function=f>'],
  ['<function=f>{"a":"'],
  ['{"name":"f","parameters":{"a":"; '],
  ['; {"', '{"name":"f","parameters":{"a":"b'],
  ['{"name":"f","parameters":{}};'],
  ['; ', '{"name":"f","parameters":{"a":"b'],
  [';          ', '{"name":"'],
  ['```json\n{"name":"f","parameters":{"a":"'],
  ['```json\n{\n'],
  ['```'],
  ['{', '{"name":"f","parameters":'],
  ['[', '{"name":"f","parameters":'],
  ['"', '{"name":"f","parameters":{"a":'],
  ['" ', "{'name':'f','parameters':{'a':'"],
  ['\\', '<tool_call>{"a":"'],
  ['[f(a='],
  ['\n[f(a='],
  ['\n[f(a="'],
  ["\n[f(a='''"],
  ["\n[f(a=x\\'''"],
  ['\n[f(a=" """ """', '[f(a="""'],
  ['\n[f(a="', "[f(a='"],
  ['</think>[f(a="', "[f(a='"],
  ['\n[f(a=(', '[f(a='],
  ['[', '[f(a='],
  ['(', '[f(a='],
  ['{"a":', '[f(a='],
  ['f(a=x), ', '['],
  ['f(a=x', '['],
  ["f(a='), ", '['],
  ['f(a="x\n', '['],
  ['\n\n', '[f(a="'],
  ['\n\n', '[f(a=x'],
  ['\n[f(', '[f(a="""'],
  ['1', '[f(a='],
  ['a', '['],
  ['\n[aaaaaaaaaaaaaaaaaaaaaaaaaaa'],
  ['\\', '[f(a="'],
  ['**{},', '[f('],
]

const characters = 6000
const factor = 8
/** Where the kernel counts by its ticks, a few milliseconds say nothing; those who are not sure go on for longer. */
const enoughMs = 15
const mostMs = 1_000

describe.each(toolFormatNames)('parsing %s takes time in proportion to the reply', (name) => {
  const format = toolFormats[name]

  test.each(hostile)('%j after %j', (repeated, before = '') => {
    const reply = (size: number) => before + repeated.repeat(Math.ceil(size / repeated.length))
    const short = reply(characters)
    const long = reply(characters * factor)
    const parse = (text: string) => format.parse(text, 'c')
    const parseShort = () => {
      for (let part = 0; part < factor; part += 1) parse(short)
    }
    // The first time also compiles.
    parse(short)
    let shortMs = 0
    let longMs = 0
    // As much text both times, so what is quadratic takes eight times as long in one piece.
    const isProportional = () => longMs < shortMs * 3
    for (let all = 0; all < enoughMs || (!isProportional() && all < mostMs); all = shortMs + longMs) {
      shortMs += cpuMsOf(parseShort)
      longMs += cpuMsOf(() => parse(long))
    }
    expect(isProportional(), `${shortMs} ms in pieces, ${longMs} ms as a whole`).toBe(true)
  })
})

/** This thread's own, so it does not matter who else uses the machine. */
function cpuMsOf(work: () => unknown): number {
  const before = process.threadCpuUsage()
  work()
  const { user, system } = process.threadCpuUsage(before)
  return (user + system) / 1000
}
