import type { ToolFormat } from '../../../src/tool-formats/tool-format.ts'

/** The calls of a reply as `[name, arguments]`, with the server in front where one is named. */
export function briefCalls(format: ToolFormat, text: string): readonly (readonly string[])[] {
  return format.parse(text, 'c').map(({ server, function: { name, arguments: args } }) => {
    return server === undefined ? [name, args] : [server, name, args]
  })
}
