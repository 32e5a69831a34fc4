import { MillraceError } from '../../../errors/index.ts'

/** How a process ended: one of the two is set. */
export interface ServerExit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** The name under which the gate's shell complains: what it could not run is told from what the server itself says. */
export const gateName = 'millrace-gate'
const notExecutable = 126
const notFound = 127

export interface EndedServer {
  readonly server: string
  readonly command: string
  readonly exit: ServerExit
  /** The end of what it wrote to stderr. */
  readonly stderr: string
}

/** Why a server is gone, and what to do about it. */
export function exitFailure({ server, command, exit, stderr }: EndedServer): MillraceError {
  const isGate = stderr.startsWith(`${gateName}:`)
  if (isGate && exit.code === notFound) {
    return failure(`there is no command '${command}' to start server '${server}': install it, or correct "command"`)
  }
  if (isGate && exit.code === notExecutable) {
    return failure(`the command '${command}' of server '${server}' cannot be executed: check its permissions`)
  }
  const lastLine = stderr.trimEnd().split('\n').at(-1)
  return failure(
    `server '${server}' ${describeExit(exit)}${lastLine ? `; the last it wrote to stderr: ${lastLine}` : ''}`,
  )

  function failure(message: string): MillraceError {
    return new MillraceError('tool_infra', message, {
      data: { server, exitCode: exit.code, signal: exit.signal, ...(stderr && { stderr }) },
    })
  }
}

function describeExit({ code, signal }: ServerExit): string {
  return signal ? `was killed by ${signal}` : `exited with code ${code}`
}
