import { createHash } from 'node:crypto'
import { MillraceError } from '../../errors/index.ts'

/** A tool that needs a name, and its server. */
export interface ToolToName {
  readonly server: string
  /** The name with the server's prefix. */
  readonly wanted: string
}

/** The names of functions that OpenAI's API and servers modelled on it accept. */
const namePattern = /^[a-zA-Z0-9_-]{1,64}$/
const maxLength = 64
const hashLength = 8

/**
 * The name under which models see each tool, in order. Names that every model API accepts stay as they are; `files.read` becomes
 * `files_read`, or `files_read_` and a hash of it where another tool has that name. The same tools always get the same names.
 */
export function exposedNames(tools: readonly ToolToName[]): string[] {
  const owners = new Map<string, ToolToName>()
  for (const tool of tools) {
    if (!namePattern.test(tool.wanted)) continue
    const other = owners.get(tool.wanted)
    if (other) throw clash(tool.wanted, other.server, tool.server)
    owners.set(tool.wanted, tool)
  }
  const plain = tools.map(({ wanted }) => plainName(wanted))
  const counts = new Map<string, number>()
  for (const name of plain) counts.set(name, (counts.get(name) ?? 0) + 1)
  return tools.map((tool, index) => {
    const name = plain[index] ?? ''
    if (owners.get(name) === tool) return name
    const isLong = tool.wanted.length > maxLength
    return isLong || (counts.get(name) ?? 0) > 1 ? withHash(name, tool) : name
  })
}

function plainName(wanted: string): string {
  return wanted.replaceAll(/[^a-zA-Z0-9_-]+/g, '_') || '_'
}

function withHash(name: string, { server, wanted }: ToolToName): string {
  const hash = createHash('sha256')
    .update(JSON.stringify([server, wanted]))
    .digest('hex')
    .slice(0, hashLength)
  return `${name.slice(0, maxLength - hashLength - 1)}_${hash}`
}

function clash(name: string, first: string, second: string): MillraceError {
  return new MillraceError(
    'config_invalid',
    `the tool servers "${first}" and "${second}" both have a tool "${name}": set "prefix" for one of them, ` +
      `such as "prefix": "${second}_", or leave it out with "deny"`,
    { data: { tool: name, first, second } },
  )
}
