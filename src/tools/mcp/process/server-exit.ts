import { MillraceError } from '../../../errors/index.ts'

/** How a process ended: one of the two is set. */
export interface ServerExit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** The name under which the gate's shell complains: this tells a command that it could not run from the server's own errors. */
export const gateName = 'millrace-gate'
const notExecutable = 126
const notFound = 127

export interface EndedServer {
  readonly server: string
  readonly command: string
  readonly exit: ServerExit
  /** The end of the server's stderr. */
  readonly stderr: string
}

/** Why a server is gone, and what to do about it. */
export function exitFailure({ server, command, exit, stderr }: EndedServer): MillraceError {
  const refused = refusedAtGate(exit, stderr)
  if (refused === 'not found') {
    return failure(`there is no command '${command}' to start server '${server}': install it, or correct "command"`)
  }
  if (refused === 'not executable') {
    return failure(`the command '${command}' of server '${server}' cannot be executed: check its permissions`)
  }
  const word = lastWord(stderr)
  return failure(`server '${server}' ${describeExit(exit)}${word ? `; the last it wrote to stderr: ${word}` : ''}`)

  function failure(message: string): MillraceError {
    return new MillraceError('tool_infra', message, {
      data: { server, exitCode: exit.code, signal: exit.signal, ...(stderr && { stderr }) },
    })
  }
}

/** Why a command that was let through the gate never ran; undefined if it did. */
export function refusedAtGate({ code }: ServerExit, stderr: string): 'not found' | 'not executable' | undefined {
  if (!stderr.startsWith(`${gateName}:`)) return undefined
  return code === notFound ? 'not found' : code === notExecutable ? 'not executable' : undefined
}

/** The last line that says something: Node writes its stack and its version below the error. */
function lastWord(stderr: string): string | undefined {
  const lines = stderr.trimEnd().split('\n')
  const last = lines.at(-1)
  const isNodesFooter = last !== undefined && /^Node\.js v\d/.test(last)
  return isNodesFooter ? (lines.findLast((line) => /^\w*Error\b.*: /.test(line)) ?? last) : last
}

function describeExit({ code, signal }: ServerExit): string {
  return signal ? `was killed by ${signal}` : `exited with code ${code}`
}
