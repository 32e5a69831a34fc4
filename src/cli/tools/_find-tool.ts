import { MillraceError } from '../../errors/index.ts'
import { nearestNames } from '../../kit/index.ts'

/** A tool that can be called, and its names. */
export interface CallableTool {
  readonly server: string
  readonly name: string
}

export interface FindToolOptions {
  /** The errors of servers that did not open. */
  readonly failures: readonly MillraceError[]
  /** See `programName`. */
  readonly program: string
}

/** The server in a name written as `server.tool`, if there is a server of that name. */
export function serverIn(wanted: string, servers: Iterable<string>): string | undefined {
  for (const server of servers) if (wanted.startsWith(`${server}.`)) return server
  return undefined
}

/**
 * Finds the tool that is called `tool` or `server.tool`. If it is missing, or several servers have it, the error lists names
 * to choose from. If no name is near and a server did not open, the tool is assumed to be that server's.
 */
export function findTool<Tool extends CallableTool>(
  wanted: string,
  tools: readonly Tool[],
  { failures: [failure], program }: FindToolOptions,
): Tool {
  const exact = tools.find((tool) => fullName(tool) === wanted)
  if (exact) return exact
  const [found, ...others] = tools.filter(({ name }) => name === wanted)
  if (found && others.length === 0) return found
  if (found) {
    const choices = [found, ...others].map(fullName).join(' or ')
    throw new MillraceError('usage', `several servers have a tool "${wanted}"; say which: ${choices}`)
  }
  const near = new Set([
    ...nearestNames(wanted, new Set(tools.map(({ name }) => name))),
    ...nearestNames(wanted, tools.map(fullName)),
  ])
  if (near.size === 0 && failure) throw failure
  const hint = near.size > 0 ? `did you mean ${[...near].join(' or ')}?` : `${program} tools list shows what there is`
  throw new MillraceError('usage', `there is no tool "${wanted}"; ${hint}`)
}

function fullName({ server, name }: CallableTool): string {
  return `${server}.${name}`
}
