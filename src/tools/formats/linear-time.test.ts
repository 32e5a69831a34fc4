import { describe, expect, test } from 'vitest'
import { toolFormatNames } from './tool-format.ts'
import { toolFormats } from './tool-formats.ts'

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

describe.each(toolFormatNames)('%s takes time in proportion to the reply', (name) => {
  const format = toolFormats[name]

  test.each(hostile)('%j after %j', (repeated, before = '') => {
    const reply = (size: number) => before + repeated.repeat(Math.ceil(size / repeated.length))
    const short = reply(characters)
    const long = reply(characters * factor)
    let shortMs = Infinity
    let longMs = Infinity
    // What is quadratic takes 64 times as long. The best of several tries, since others use this machine too.
    const isProportional = () => longMs < shortMs * factor * 3 + 1
    for (let tries = 0; tries < 2 || (!isProportional() && tries < 30); tries += 1) {
      shortMs = Math.min(
        shortMs,
        timeOf(() => format.parse(short, 'c')),
      )
      longMs = Math.min(
        longMs,
        timeOf(() => format.parse(long, 'c')),
      )
    }
    expect(isProportional(), `${shortMs} ms, then ${longMs} ms`).toBe(true)
  })
})

function timeOf(work: () => unknown): number {
  const startedAt = performance.now()
  work()
  return performance.now() - startedAt
}
