import type { Json } from '../../../src/schema/index.ts'
import type { ToolFormatName } from '../../../src/tool-formats/tool-format.ts'

/** A call to be written down. */
export interface PlannedCall {
  readonly name: string
  readonly server: string
  readonly arguments: Readonly<Record<string, Json>>
}

/** How a model that makes no mistake writes calls in each of the formats. */
export const writeCalls: Record<ToolFormatName, (calls: readonly PlannedCall[]) => string> = {
  'mcp-xml': (calls) =>
    calls
      .map(
        ({ name, server, arguments: args }) =>
          `<use_mcp_tool><server_name>${server}</server_name><tool_name>${name}</tool_name><arguments>${JSON.stringify(args)}</arguments></use_mcp_tool>`,
      )
      .join('\n'),
  hermes: (calls) =>
    calls
      .map(({ name, arguments: args }) => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`)
      .join('\n'),
  llama: (calls) => calls.map(({ name, arguments: args }) => JSON.stringify({ name, parameters: args })).join('; '),
  pythonic: (calls) =>
    calls.length === 0 ? '' : `[${calls.map((call) => `${call.name}(${pythonArguments(call.arguments)})`).join(', ')}]`,
}

function pythonArguments(args: Readonly<Record<string, Json>>): string {
  return Object.entries(args)
    .map(([name, value]) =>
      /^[a-z]\w*$/i.test(name)
        ? `${name}=${pythonLiteral(value)}`
        : `**{${pythonString(name)}: ${pythonLiteral(value)}}`,
    )
    .join(', ')
}

function pythonLiteral(value: Json | undefined): string {
  if (value === null || value === undefined) return 'None'
  if (value === true) return 'True'
  if (value === false) return 'False'
  if (typeof value === 'number') return String(value)
  if (typeof value === 'string') return pythonString(value)
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(', ')}]`
  const members = Object.entries(value).map(([key, member]) => `${pythonString(key)}: ${pythonLiteral(member)}`)
  return `{${members.join(', ')}}`
}

/** As Python's own `repr`: in the quotes that need fewer escapes. */
function pythonString(value: string): string {
  const quote = value.includes("'") && !value.includes('"') ? '"' : "'"
  let literal = ''
  for (const char of value) {
    if (char === '\\' || char === quote) literal += `\\${char}`
    else if (char === '\n') literal += '\\n'
    else if (char < ' ') literal += `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`
    else literal += char
  }
  return quote + literal + quote
}
